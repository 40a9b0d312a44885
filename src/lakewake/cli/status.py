"""`lakewake status`: where each index stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakewake.cli.flags import Flags, config_option, name_argument, with_flags
from lakewake.cli.indexes import run_each
from lakewake.cli.screen import count, duration, moment, print_block

if TYPE_CHECKING:
    from lakewake.model.report import StatusReport

EXAMPLE = "lakewake status --json"
OUT_OF_SYNC = 3


@name_argument
@config_option
@with_flags
def status(name: str | None, flags: Flags) -> int:
    """Tell how far the index is behind its table, and what it holds. Exit 3: out of sync."""
    return run_each(
        flags,
        name,
        lambda i: i.status(),
        show_status,
        lambda r: 0 if r.in_step else OUT_OF_SYNC,
    )


def show_status(report: StatusReport) -> None:
    """Where one index stands, for a person."""
    print_block(f"{report.index}: {headline(report)}", status_facts(report))


def headline(report: StatusReport) -> str:
    """The state in a few words."""
    if not report.built:
        return "not built yet"
    if report.in_step:
        return "in step" + except_quarantined(report)
    if not report.lag_commits:
        return "out of step"
    return f"{count(report.lag_commits, 'commit')} behind, {duration(report.lag_seconds)}"


def except_quarantined(report: StatusReport) -> str:
    """What an index in step still lacks."""
    return f", complete except {count(report.quarantined, 'row')}" if report.quarantined else ""


def status_facts(report: StatusReport) -> list[tuple[str, str]]:
    """Where an index stands, as lines of `name  value`."""
    facts = [("table", report.table), ("its commit", moment(report.newest_instant))]
    if report.built:
        held = f"{count(report.rows, 'row')}, {count(report.chunks, 'chunk')}"
        model = f"{report.model.get('name')} {report.model.get('precision')}"
        facts += [
            ("index", report.store),
            ("stands at", moment(report.instant)),
            ("holds", f"{held}, generation {report.generation}"),
            ("model", f"{model}, {report.model.get('dimension')} dimensions"),
        ]
    if report.quarantined:
        again = "`lakewake sync --retry-quarantined` tries them again"
        facts.append(("quarantined", f"{count(report.quarantined, 'row')}; {again}"))
    if report.duplicates:
        facts.append(("duplicates", f"{count(report.duplicates, 'row id')} twice in the table"))
    facts.append(("next sync", f"{report.would.value}: {report.why}"))
    return facts
