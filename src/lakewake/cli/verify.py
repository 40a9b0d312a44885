"""`lakewake verify`: whether index and table agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakewake.cli.flags import Flags, config_option, name_argument, with_flags
from lakewake.cli.indexes import run_each
from lakewake.cli.screen import count, moment, one_line, print_block

if TYPE_CHECKING:
    from lakewake.model.report import VerifyReport
    from lakewake.model.rows import RowId

EXAMPLE = "lakewake verify wines --repair"
DIFFERS = 3
#: How many row ids of each kind are shown to a person; `--json` lists more.
SHOWN = 5


@name_argument
@click.option("--repair", is_flag=True, help="Fix exactly what differs, then verify again.")
@click.option(
    "--vectors",
    type=click.Choice(["none", "sample", "all"]),
    default="sample",
    help="Vectors to recompute from their texts and compare.",
)
@config_option
@with_flags
def verify(name: str | None, repair: bool, vectors: str, flags: Flags) -> int:
    """Compare the index with its table, row by row. Exit 3: they differ.

    Writes nothing without --repair.
    """
    return run_each(
        flags,
        name,
        lambda i: i.verify(repair=repair, vectors=vectors),
        show_verify,
        lambda r: 0 if r.agrees else DIFFERS,
    )


def show_verify(report: VerifyReport) -> None:
    """Print one comparison."""
    verdict = "index and table agree" if report.agrees else "index and table differ"
    print_block(f"{report.index}: {verdict}", verify_facts(report))


def verify_facts(report: VerifyReport) -> list[tuple[str, str]]:
    """What a comparison found, as lines of `name  value`."""
    facts = [
        ("compared", compared(report)),
        ("table at", moment(report.instant)),
    ]
    if report.date:
        facts.append(("selected", f"on {report.date}"))
    if report.limit:
        rest = f"rows that it lacks were not looked for; `lakewake sync {report.index}` adds them"
        facts.append(("partial", f"only the first {count(report.limit, 'row')}; {rest}"))
    if report.pending:
        facts.append(("pending", f"{count(report.pending, 'row')} changed since the last sync"))
    if report.quarantined:
        facts.append(
            ("quarantined", f"{count(report.quarantined, 'row')} whose text could not be embedded")
        )
    if report.repaired:
        facts.append(("repaired", count(report.repaired, "row")))
    for kind in ("missing", "orphaned", "stale", "duplicated"):
        if ids := getattr(report, kind):
            facts.append((kind, named(ids)))
    if report.wrong_model:
        facts.append(("wrong model", count(report.wrong_model, "chunk")))
    if not report.agrees:
        way = "sync --rebuild" if report.wrong_model else "verify --repair"
        facts.append(("next", f"`lakewake {way} {report.index}`"))
    return facts


def compared(report: VerifyReport) -> str:
    """How much was compared: `99 rows, 99 chunks, 99 vectors`."""
    held = f"{count(report.rows, 'row')}, {count(report.chunks, 'chunk')}"
    vectors = f", {count(report.vectors_checked, 'vector')}" if report.vectors_checked else ""
    return held + vectors


def named(ids: tuple[RowId, ...]) -> str:
    """How many rows, and the first few by name."""
    names = [one_line(f"{i.partition}/{i.key}" if i.partition else i.key) for i in ids[:SHOWN]]
    more = ", …" if len(ids) > SHOWN else ""
    return f"{count(len(ids), 'row')}: {', '.join(names)}{more}"
