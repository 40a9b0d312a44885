"""`lakewake ingest`: write the rows of files to a Hudi table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakewake.cli.flags import Flags, argument, with_flags
from lakewake.cli.screen import count, duration, moment, one_line, print_block, print_json

if TYPE_CHECKING:
    from lakewake.ingest import IngestReport

EXAMPLE = "lakewake ingest wines.csv lake/wine_reviews --key wine_id --ordering ts"


def columns(names: str) -> tuple[str, ...]:
    """Split `a, b` into two names."""
    return tuple(n.strip() for n in names.split(",") if n.strip())


columns_option = partial(
    click.option, type=columns, default="", show_default=False, metavar="COLUMN[,…]"
)


@argument("file", help="A file, a folder or a pattern.")
@argument("table", help="The table's path; created if missing.")
@columns_option("--key", help="Columns that identify a row; needed for a new table.")
@click.option(
    "--ordering",
    metavar="COLUMN",
    help="If keys are equal, the row with the greater value here wins.",
)
@columns_option("--partition", help="Columns to partition a new table by.")
@click.option(
    "--type", "table_type", metavar="cow|mor", help="Type of a new table.  [default: cow]"
)
@click.option(
    "--operation",
    default="upsert",
    metavar="NAME",
    help="upsert, insert, bulk_insert, delete or insert_overwrite.",
)
@click.option(
    "--format", "format_", metavar="NAME", help="csv, json or parquet; else by file name."
)
@click.option("--strict", is_flag=True, help="Write nothing if any line is bad.")
@click.option("--bad", type=Path, metavar="FILE", help="List all bad lines in this file.")
@click.option(
    "--config",
    "-c",
    type=Path,
    metavar="FILE",
    help="Use [spark] and untested_schemes of this file.",
)
@with_flags
def ingest(
    file: str,
    table: str,
    key: tuple[str, ...],
    ordering: str | None,
    partition: tuple[str, ...],
    table_type: str | None,
    operation: str,
    format_: str | None,
    strict: bool,
    bad: Path | None,
    flags: Flags,
) -> int:
    """Write CSV, JSON lines or Parquet to a Hudi table.

    Writes one commit, and creates the table if it is missing.
    """
    from lakewake.config.file import load_config
    from lakewake.ingest import IngestRequest, check_request
    from lakewake.ingest import ingest as write_rows
    from lakewake.spark.session import start_session

    settings = load_config(flags.config) if flags.config else None
    request = IngestRequest(
        source=file,
        table=table,
        format=format_,
        key=key,
        ordering=ordering,
        partition=partition,
        table_type=table_type,
        operation=operation,
        strict=strict,
        bad_file=bad,
        untested_schemes=bool(settings and settings.untested_schemes),
    )
    # Before Spark starts, so that a mistyped name or a missing key is reported at once.
    check_request(request)
    reporter = flags.reporter()
    with reporter.stage("start Spark"):
        options = settings.spark if settings else {}
        spark = start_session(options, tables=[table], verbose=flags.verbose)
    report = write_rows(spark, request, reporter)
    if flags.json:
        print_json(report.as_dict())
    else:
        show_ingest(report)
    return 0


def show_ingest(report: IngestReport) -> None:
    """Print what was written."""
    facts = [
        ("read", count(report.read, "row")),
        (
            "written",
            f"{report.inserted:,} inserted, {report.updated:,} updated, {report.deleted:,} deleted",
        ),
        ("commit", moment(report.instant)),
        ("took", duration(report.seconds)),
    ]
    if report.duplicates:
        facts.append(("same key", f"{count(report.duplicates, 'row')} with the key of another row"))
    if report.new_columns:
        facts.append(("new columns", ", ".join(report.new_columns)))
    if report.bad:
        facts.append(("bad lines", f"{report.bad:,}, not written"))
    facts += [("", f"{b.file} line {b.line}: {one_line(b.reason)}") for b in report.bad_lines]
    made = ", created" if report.created else ""
    print_block(f"{report.table}: {report.operation}{made}", facts)
