"""`lakewake sync`: bring indexes to their table's latest commit, once or continuously."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from lakewake.cli.early import start_jvm_if_behind
from lakewake.cli.flags import Flags, config_option, name_argument, with_flags
from lakewake.cli.indexes import chosen, opened, run_jobs
from lakewake.cli.screen import (
    count,
    duration,
    in_bytes,
    moment,
    one_line,
    print_block,
    print_json,
)
from lakewake.errors import ConfigError, LakewakeError

if TYPE_CHECKING:
    from lakewake.api import Index
    from lakewake.model.reads import Reads
    from lakewake.model.report import SyncReport
    from lakewake.sync.watch import StopSignal

EXAMPLE = "lakewake sync wines --watch --interval 10"


def refuse_nan(_context: click.Context, _option: click.Parameter, seconds: float) -> float:
    """The seconds, unless they are NaN, which passes every range check."""
    if math.isnan(seconds):
        raise click.BadParameter(f"{seconds} is not a number of seconds")
    return seconds


@name_argument
@click.option("--watch", is_flag=True, help="Keep running and follow every commit until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=86_400),
    default=5.0,
    callback=refuse_nan,
    metavar="SECONDS",
    help="Time between two looks at the table, with --watch.",
)
@click.option("--rebuild", is_flag=True, help="Build a new index beside the old one, then switch.")
@click.option(
    "--reconcile/--no-reconcile",
    default=None,
    help="Always compare the whole table, or never (exit 3 if history is lost).",
)
@click.option("--retry-quarantined", is_flag=True, help="Retry rows that the embedder refused.")
@click.option("--allow-deletes", is_flag=True, help="Allow this sync to remove many rows.")
@click.option(
    "--retrain",
    is_flag=True,
    help="In the lake: afterwards train new cells, and use them if they are not worse.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="ROWS",
    help="For a first try: index only this many rows. The next sync without --limit indexes all.",
)
@config_option
@with_flags
def sync(
    name: str | None,
    watch: bool,
    interval: float,
    rebuild: bool,
    reconcile: bool | None,
    retry_quarantined: bool,
    allow_deletes: bool,
    retrain: bool,
    limit: int | None,
    flags: Flags,
) -> int:
    """Bring the index to the table's latest commit. Embeds only what changed.

    If the table's history cannot be followed, the whole table is compared with the index and only
    differences are written; known text is not embedded again. A sync that would remove more than
    half of the rows, and more than 1,000, is refused (exit 3) unless --allow-deletes is given.
    """
    asked = {
        "--rebuild": rebuild,
        "--reconcile": bool(reconcile),
        "--retry-quarantined": retry_quarantined,
        "--allow-deletes": allow_deletes,
        "--retrain": retrain,
        "--limit": limit is not None,
    }
    if rebuild and reconcile is not None:
        raise ConfigError("--rebuild and --reconcile cannot be combined", hint="choose one")
    if watch:
        _refuse_beside_watch(asked)
        return _follow(flags, name, interval, reconcile)

    if not flags.verbose:
        start_jvm_if_behind(flags.config, name)

    def job(index: Index) -> SyncReport:
        report = index.sync(
            rebuild=rebuild,
            reconcile=reconcile,
            retry_quarantined=retry_quarantined,
            allow_deletes=allow_deletes,
            retrain=retrain,
            limit=limit,
        )
        log_sync(report)
        return report

    with opened(flags) as lake:
        jobs = {index.name: partial(job, index) for index in chosen(lake, name)}
        # Indexes of one table read its changes once.
        with lake.together(*jobs):
            return run_jobs(flags, jobs, show_sync)


def _refuse_beside_watch(flags: Mapping[str, bool]) -> None:
    """Refuse flags that answer the situation of the moment: a watch would repeat the answer."""
    for asked in (flag for flag, given in flags.items() if given):
        example = f"{asked} 1000" if asked == "--limit" else asked
        raise ConfigError(
            f"--watch and {asked} cannot be combined",
            hint=f"run `lakewake sync {example}` first, then --watch without it",
        )


def _follow(flags: Flags, name: str | None, interval: float, reconcile: bool | None) -> int:
    from lakewake.sync.watch import StopSignal, watch

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)
        if logs := sys.modules.get("lakewake.cli.logs"):
            logs.log_line(line)

    def show(reports: Sequence[SyncReport]) -> None:
        for report in reports:
            log_sync(report)
        if flags.json:
            print_json({"indexes": [r.as_dict() for r in reports]})
        else:
            for report in reports:
                show_sync(report)

    with opened(flags) as lake, StopSignal() as stop:
        indexes = chosen(lake, name)
        syncs = {i.name: partial(_sync_and_persist, i, say, reconcile) for i in indexes}
        desks = [JobDesk(index, say, reconcile) for index in indexes]
        if not flags.quiet:
            say(f"watching {', '.join(syncs)} every {interval:g} s; Ctrl-C stops")
        watch(
            syncs,
            interval=interval,
            wait=lambda seconds: attended(desks, stop) or stop.wait(seconds),
            say=say,
            show=show,
            around=lambda names: lake.together(*names),
        )
    if not flags.quiet:
        say("stopped; nothing was left half-written")
    return 0


def attended(desks: Sequence[JobDesk], stop: StopSignal) -> bool:
    """Do what operators have asked for; True if the watch was asked to stop."""
    for desk in desks:
        if stop.wait(0):
            return True
        desk.attend()
    return False


class JobDesk:
    """Does the jobs that operators ask of one index, between the rounds of a watch."""

    def __init__(self, index: Index, say: Callable[[str], None], reconcile: bool | None) -> None:
        self._index, self._say, self._reconcile = index, say, reconcile
        self._trouble = ""

    def attend(self) -> None:
        """Do one job that waits, if there is one. A watch never ends because of a job."""
        try:
            job = self._index.do_job(self._sync)
            self._trouble = ""
        except LakewakeError as error:
            # Said once, although every round tries again.
            if error.fact != self._trouble:
                self._say(one_line(f"{self._index.name}: {error.fact}"))
            self._trouble = error.fact
        else:
            if job is not None:
                self._say(one_line(f"{self._index.name}: {job.kind.value}, asked for by {job.by}"))

    def _sync(self, again: bool) -> SyncReport:
        if again:
            return self._index.sync(reconcile=self._reconcile, retry_quarantined=True)
        return _sync_and_persist(self._index, self._say, self._reconcile)


def _sync_and_persist(
    index: Index, say: Callable[[str], None], reconcile: bool | None
) -> SyncReport:
    from lakewake.sync.watch import sync_or_heal

    report = sync_or_heal(index, say, reconcile=reconcile)
    index.persist_hot()
    return report


def log_sync(report: SyncReport) -> None:
    """Log one sync."""
    if logs := sys.modules.get("lakewake.cli.logs"):
        what = f"{report.index}: {report.action.value}, {report.why}"
        logs.log_report(what, report.as_dict())


def show_sync(report: SyncReport) -> None:
    """Print one sync."""
    print_block(f"{report.index}: {report.action.value}", sync_facts(report))


def sync_facts(report: SyncReport) -> list[tuple[str, str]]:
    """What a sync did, as lines of `name  value`."""
    facts = [("why", report.why)]
    if report.action.value != "nothing":
        rows = f"{count(report.rows_changed, 'row')} changed, {report.rows_deleted:,} deleted"
        sent = f" ({report.tokens:,} tokens)" if report.tokens else ""
        texts = f"{count(report.embedded, 'text')} embedded{sent}, {report.reused:,} reused"
        facts += [("rows", rows), ("texts", texts), ("read", read_of(report.reads))]
    if report.quarantined:
        facts.append(
            ("quarantined", f"{count(report.quarantined, 'row')} whose text could not be embedded")
        )
    facts.append(("table at", moment(report.to_instant)))
    if report.retrained:
        facts.append(("retrained", report.retrained.in_words))
    if report.canaries:
        facts.append(("canaries", one_line(report.canaries.in_words)))
    if report.seconds:
        facts.append(("took", took(report)))
    return facts


def read_of(reads: Reads) -> str:
    """How much of the table was read: `3 of 120 file groups, 1.2 MB of 80 MB`.

    What another index's sync has read just before is `shared with another index`.
    """
    groups, size = reads.groups_in_table, reads.bytes_in_table
    of_groups = "" if groups is None else f" of {groups:,}"
    of_bytes = "" if size is None else f" of {in_bytes(size)}"
    shared = f", {in_bytes(reads.shared_bytes)} shared with another index"
    what = f"{reads.groups:,}{of_groups} file groups, {in_bytes(reads.bytes)}{of_bytes}"
    return what + (shared if reads.shared_bytes else "")


def took(report: SyncReport) -> str:
    """The total time and the time per stage: `1.2 s (read 0.4 s, embed 0.6 s)`."""
    stages = [f"{k} {duration(v)}" for k, v in report.seconds.items() if k != "total"]
    total = report.seconds.get("total", sum(report.seconds.values()))
    return duration(total) + (f" ({', '.join(stages)})" if stages else "")
