"""`lakewake verify`: whether index and table agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakewake.cli.flags import Flags, config_option, name_argument, with_flags
from lakewake.cli.indexes import run_each
from lakewake.cli.screen import count, moment, one_line, print_block

if TYPE_CHECKING:
    from lakewake.model.report import VerifyReport
    from lakewake.model.rows import RowId

EXAMPLE = "lakewake verify wines"
OUT_OF_SYNC = 3
#: How many row ids of each kind are shown to a person; `--json` lists more.
SHOWN = 5


@name_argument
@config_option
@with_flags
def verify(name: str | None, flags: Flags) -> int:
    """Compare the index with its table, row by row. Exit 3: they differ. Writes nothing."""
    return run_each(
        flags,
        name,
        lambda i: i.verify(),
        show_verify,
        lambda r: 0 if r.agrees else OUT_OF_SYNC,
    )


def show_verify(report: VerifyReport) -> None:
    """One comparison for a person."""
    verdict = "index and table agree" if report.agrees else "index and table differ"
    print_block(f"{report.index}: {verdict}", verify_facts(report))


def verify_facts(report: VerifyReport) -> list[tuple[str, str]]:
    """What a comparison found, as lines of `name  value`."""
    facts = [
        ("compared", f"{count(report.rows, 'row')}, {count(report.chunks, 'chunk')}"),
        ("table at", moment(report.instant)),
    ]
    if report.pending:
        facts.append(("pending", f"{count(report.pending, 'row')} changed since the last sync"))
    if report.quarantined:
        facts.append(("quarantined", count(report.quarantined, "row")))
    for kind in ("missing", "orphaned", "stale", "duplicated"):
        if ids := getattr(report, kind):
            facts.append((kind, named(ids)))
    if report.wrong_model:
        facts.append(("wrong model", count(report.wrong_model, "chunk")))
    return facts


def named(ids: tuple[RowId, ...]) -> str:
    """How many rows, and the first few by name."""
    names = [one_line(f"{i.partition}/{i.key}" if i.partition else i.key) for i in ids[:SHOWN]]
    more = ", …" if len(ids) > SHOWN else ""
    return f"{count(len(ids), 'row')}: {', '.join(names)}{more}"
