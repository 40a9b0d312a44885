"""`lakewake sync`: bring indexes to their table's latest commit, once or continuously."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from lakewake.cli.early import start_jvm_if_behind
from lakewake.cli.flags import Flags, config_option, name_argument, with_flags
from lakewake.cli.indexes import chosen, opened, run_each
from lakewake.cli.screen import count, duration, moment, print_block, print_json
from lakewake.errors import ConfigError

if TYPE_CHECKING:
    from lakewake.api import Index
    from lakewake.model.report import SyncReport

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
@click.option("--allow-deletes", is_flag=True, help="Remove rows, even most of the index.")
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
    flags: Flags,
) -> int:
    """Bring the index to the table's latest commit. Embeds only what changed.

    If the table's history cannot be followed, the whole table is compared with the index and only
    differences are written; known text is not embedded again. A sync that would remove more than
    half of the rows, and more than 1,000, is refused (exit 3) unless --allow-deletes is given.
    """
    if rebuild and reconcile is not None:
        raise ConfigError("--rebuild and --reconcile cannot be combined", hint="choose one")
    if watch:
        _refuse_beside_watch(
            {
                "--rebuild": rebuild,
                "--reconcile": bool(reconcile),
                "--retry-quarantined": retry_quarantined,
                "--allow-deletes": allow_deletes,
            }
        )
        return _follow(flags, name, interval, reconcile)

    if not flags.verbose:
        start_jvm_if_behind(flags.config, name)

    def job(index: Index) -> SyncReport:
        return index.sync(
            rebuild=rebuild,
            reconcile=reconcile,
            retry_quarantined=retry_quarantined,
            allow_deletes=allow_deletes,
        )

    return run_each(flags, name, job, show_sync)


def _refuse_beside_watch(flags: Mapping[str, bool]) -> None:
    """Refuse flags that answer the situation of the moment: a watch would repeat the answer."""
    for asked in (flag for flag, given in flags.items() if given):
        raise ConfigError(
            f"--watch and {asked} cannot be combined",
            hint=f"run `lakewake sync {asked}` first, then --watch without it",
        )


def _follow(flags: Flags, name: str | None, interval: float, reconcile: bool | None) -> int:
    from lakewake.sync.watch import StopSignal, sync_or_heal, watch

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def show(reports: Sequence[SyncReport]) -> None:
        if flags.json:
            print_json({"indexes": [r.as_dict() for r in reports]})
        else:
            for report in reports:
                show_sync(report)

    with opened(flags) as lake, StopSignal() as stop:
        syncs = {
            i.name: partial(sync_or_heal, i, say, reconcile=reconcile) for i in chosen(lake, name)
        }
        if not flags.quiet:
            say(f"watching {', '.join(syncs)} every {interval:g} s; Ctrl-C stops")
        watch(syncs, interval=interval, wait=stop.wait, say=say, show=show)
    if not flags.quiet:
        say("stopped; nothing was left half-written")
    return 0


def show_sync(report: SyncReport) -> None:
    """Print one sync."""
    print_block(f"{report.index}: {report.action.value}", sync_facts(report))


def sync_facts(report: SyncReport) -> list[tuple[str, str]]:
    """What a sync did, as lines of `name  value`."""
    facts = [("why", report.why)]
    if report.action.value != "nothing":
        rows = f"{count(report.rows_changed, 'row')} changed, {report.rows_deleted:,} deleted"
        texts = f"{count(report.embedded, 'text')} embedded, {report.reused:,} reused"
        facts += [("rows", rows), ("texts", texts)]
    if report.quarantined:
        facts.append(
            ("quarantined", f"{count(report.quarantined, 'row')} whose text could not be embedded")
        )
    facts.append(("table at", moment(report.to_instant)))
    if report.seconds:
        facts.append(("took", took(report)))
    return facts


def took(report: SyncReport) -> str:
    """The total time and the time per stage: `1.2 s (read 0.4 s, embed 0.6 s)`."""
    stages = [f"{k} {duration(v)}" for k, v in report.seconds.items() if k != "total"]
    total = report.seconds.get("total", sum(report.seconds.values()))
    return duration(total) + (f" ({', '.join(stages)})" if stages else "")
