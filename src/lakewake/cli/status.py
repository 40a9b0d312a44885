"""`lakewake status`: how far each index is behind its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakewake.cli.flags import Flags, config_option, name_argument, with_flags
from lakewake.cli.indexes import run_each
from lakewake.cli.screen import count, duration, moment, one_line, print_block, selection_facts
from lakewake.model.hot import HotStatus, in_words

if TYPE_CHECKING:
    from lakewake.model.history import SyncRecord
    from lakewake.model.recall import CellSizes, Searching
    from lakewake.model.report import StatusReport

EXAMPLE = "lakewake status --json"
OUT_OF_STEP = 3


@name_argument
@click.option(
    "--check",
    is_flag=True,
    help="Exit 3 only if an index is not built or not fresh.",
)
@config_option
@with_flags
def status(name: str | None, check: bool, flags: Flags) -> int:
    """Show how far the index is behind its table, and what it holds. Exit 3: out of step."""

    def code(report: StatusReport) -> int:
        return 0 if (report.fresh if check else report.in_step) else OUT_OF_STEP

    return run_each(flags, name, lambda i: i.status(), show_status, code)


def show_status(report: StatusReport) -> None:
    """Print the status of one index."""
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
    """What an index in step with its table still lacks."""
    return f", complete except {count(report.quarantined, 'row')}" if report.quarantined else ""


def status_facts(report: StatusReport) -> list[tuple[str, str]]:
    """The status of an index, as lines of `name  value`."""
    facts = [("table", report.table), ("its commit", moment(report.newest_instant))]
    if report.built:
        held = f"{count(report.rows, 'row')}, {count(report.chunks, 'chunk')}"
        model = f"{report.model.get('name')} {report.model.get('precision')}"
        facts += [
            ("index", report.store),
            ("index at", moment(report.instant)),
            ("holds", f"{held}, generation {report.generation}"),
            ("model", f"{model}, {report.model.get('dimension')} dimensions"),
        ]
    facts += selection_facts(report.where, report.date, report.limit, report.index)
    if report.searching:
        facts.append(("searched", searched(report.searching)))
        if report.searching.cells:
            facts.append(("cells", cells(report.searching.cells)))
        if last := report.searching.retrained:
            facts.append(("retrained", f"{last.in_words} ({last.at})"))
    if report.hot and report.hot.state != "off":
        facts.append(("in memory", hot(report.hot)))
    if report.freshness_limit is not None:
        facts.append(("freshness", freshness(report, report.freshness_limit)))
    if report.quarantined:
        again = "`lakewake sync --retry-quarantined` tries them again"
        facts.append(("quarantined", f"{count(report.quarantined, 'row')}; {again}"))
    if report.duplicates:
        facts.append(("duplicates", f"{count(report.duplicates, 'row id')} twice in the table"))
    if report.canaries:
        facts.append(("canaries", one_line(report.canaries.in_words)))
    if report.last_sync:
        facts.append(("last sync", last_sync(report.last_sync)))
    facts.append(("next sync", f"{report.would.value}: {report.why}"))
    return facts


def searched(how: Searching) -> str:
    """How the index is searched by vector, and with what measured recall."""
    if how.mode == "exact":
        return f"exactly: {how.why}"
    width = f"{how.probes:,} of {how.partitions:,} partitions"
    kind = f" ({how.kind})" if how.kind else ""
    way = f"approximately{kind}, {width if how.partitions else f'{how.probes:,} candidates held'}"
    if how.recall_mean is None or how.recall_worst_tenth is None:
        return f"{way}, recall not probed yet"
    promised = f"recall promised {how.recall:g}"
    found = f"found {how.recall_mean:.3f}, worst tenth {how.recall_worst_tenth:.3f}"
    return f"{way}, {promised}, {found} by {how.questions} questions at {how.probed_at}"


def hot(held: HotStatus) -> str:
    """What this process holds of the index in memory."""
    size = f", {in_words(held.bytes)} of {in_words(held.limit)}" if held.bytes else ""
    return f"{held.state}{size}: {held.why}"


def cells(sizes: CellSizes) -> str:
    """How the chunks of an index in the lake are spread over its cells."""
    held = f"{sizes.smallest:,} to {sizes.largest:,} chunks each, median {sizes.median:,}"
    return f"{sizes.cells:,}, {held}; the largest holds {sizes.skew:.1f} × the mean"


def freshness(report: StatusReport, limit: float) -> str:
    """How far behind its table the index is, and how far it may be."""
    behind = f"{duration(report.lag_seconds)} behind" if report.built else "not built yet"
    allowed = f"{limit:g} s" if limit < 120 else duration(limit)
    return f"{'fresh' if report.fresh else 'STALE'}: {behind}, limit {allowed}"


def last_sync(record: SyncRecord) -> str:
    """The last sync that did something, or failed, in one line."""
    when = f"{record.time:%Y-%m-%d %H:%M:%S} UTC"
    if record.error is not None:
        return f"{when}: failed: {one_line(record.error)}"
    rows = f"{count(record.rows_changed, 'row')} changed, {record.rows_deleted:,} deleted"
    texts = f"{count(record.embedded, 'text')} embedded, {record.reused:,} reused"
    return f"{when}: {record.action}: {rows}, {texts}, {duration(record.took)}"
