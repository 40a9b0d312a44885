"""`lakewake ingest`: rows of a file into a Hudi table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakewake.cli.flags import Json, Quiet, Verbose
from lakewake.cli.screen import count, duration, moment, one_line, print_block, print_json
from lakewake.progress import choose_reporter

if TYPE_CHECKING:
    from lakewake.ingest import IngestReport

EXAMPLE = "lakewake ingest wines.csv lake/wine_reviews --key wine_id --ordering ts"


def ingest(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file, a folder or a pattern.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Made where there is none.")],
    key: Annotated[
        str, typer.Option(metavar="COLUMN[,…]", help="Names a row; needed for a new table.")
    ] = "",
    ordering: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Of two versions, the greater wins.")
    ] = None,
    partition: Annotated[
        str, typer.Option(metavar="COLUMN[,…]", help="Divides the table into folders.")
    ] = "",
    table_type: Annotated[
        str | None,
        typer.Option("--type", metavar="cow|mor", help="Of a new table.  [default: cow]"),
    ] = None,
    operation: Annotated[
        str, typer.Option(help="upsert, insert, bulk_insert, delete or insert_overwrite.")
    ] = "upsert",
    format_: Annotated[
        str | None, typer.Option("--format", help="csv, json or parquet; else as the name tells.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Write nothing when there is a bad line.")
    ] = False,
    bad: Annotated[
        Path | None, typer.Option(metavar="FILE", help="List all bad lines there.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="Use its Spark options.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Write CSV, JSON lines or Parquet to a Hudi table. In one commit; makes the table."""
    from lakewake.ingest import IngestRequest, check_request
    from lakewake.ingest import ingest as write_rows
    from lakewake.ingest.staging import find_source
    from lakewake.spark import start_session

    request = IngestRequest(
        source=file,
        table=table,
        format=format_,
        key=columns(key),
        ordering=ordering,
        partition=columns(partition),
        table_type=table_type,
        operation=operation,
        strict=strict,
        bad_file=bad,
    )
    # Before Spark: a mistyped name is told at once.
    check_request(request)
    find_source(request.source, request.format)
    reporter = choose_reporter(sys.stderr, quiet=quiet)
    with reporter.stage("start Spark"):
        spark = start_session(spark_options(config), verbose=verbose)
    report = write_rows(spark, request, reporter)
    if json:
        print_json(report.as_dict())
    else:
        show_ingest(report)
    return 0


def columns(names: str) -> tuple[str, ...]:
    """`a, b` as two names."""
    return tuple(n.strip() for n in names.split(",") if n.strip())


def spark_options(config: Path | None) -> dict[str, str]:
    """The `[spark]` options of a configuration, when one is named."""
    from lakewake.config import load_config

    return dict(load_config(config).spark) if config else {}


def show_ingest(report: IngestReport) -> None:
    """What was written, for a person."""
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
        facts.append(("same key", f"{count(report.duplicates, 'row')} more than once in the files"))
    if report.new_columns:
        facts.append(("new columns", ", ".join(report.new_columns)))
    if report.bad:
        facts.append(("bad lines", f"{report.bad:,}, not written"))
    facts += [("", f"{b.file} line {b.line}: {one_line(b.reason)}") for b in report.bad_lines]
    made = ", created" if report.created else ""
    print_block(f"{report.table}: {report.operation}{made}", facts)
