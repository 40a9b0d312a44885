"""`lakewake history`: what the last syncs did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from lakewake.cli.flags import Flags, config_option, name_argument, with_flags
from lakewake.cli.indexes import run_each
from lakewake.cli.screen import count, cut, duration, one_line, width
from lakewake.cli.sync import read_of

if TYPE_CHECKING:
    from lakewake.api import Index
    from lakewake.model.history import SyncRecord

EXAMPLE = "lakewake history wines -n 5"
HEADING = f"{'when (UTC)':19}  {'action':9}  changed  deleted  embedded   reused     took"


@dataclass(frozen=True)
class History:
    """The last syncs of one index, newest first."""

    index: str
    syncs: tuple[SyncRecord, ...]

    def as_dict(self) -> dict[str, Any]:
        """The object that `history --json` prints for each index."""
        return {"index": self.index, "history": [s.as_dict() for s in self.syncs]}


@name_argument
@click.option("-n", type=click.IntRange(min=1), default=20, metavar="N", help="Number of syncs.")
@config_option
@with_flags
def history(name: str | None, n: int, flags: Flags) -> int:
    """Show what the last syncs did, newest first. Syncs with nothing to do are not recorded."""

    def read(index: Index) -> History:
        return History(index.name, index.history(n))

    return run_each(flags, name, read, show_history)


def show_history(history: History) -> None:
    """Print the syncs, each on two lines cut to the screen's width."""
    title = count(len(history.syncs), "sync") if history.syncs else "no syncs yet"
    click.secho(f"{history.index}: {title}", bold=True)
    if history.syncs:
        click.secho(cut(f"  {HEADING}", width()), dim=True)
    for record in history.syncs:
        figures, words = sync_lines(record)
        click.echo(cut(f"  {figures}", width()))
        click.secho(cut(f"    {words}", width()), dim=True)


def sync_lines(record: SyncRecord) -> tuple[str, str]:
    """Two lines: when, what and how much; then from which instant to which, and why."""
    when = f"{record.time:%Y-%m-%d %H:%M:%S}  {record.action:9}"
    if record.error is not None:
        return f"{when}{duration(record.took):>46}", one_line(record.error)
    rows = f"{record.rows_changed:>7,}  {record.rows_deleted:>7,}"
    texts = f"{record.embedded:>8,}  {record.reused:>7,}"
    span = f"{record.from_instant or 'nothing'} → {record.to_instant or 'nothing'}"
    read = f"; read {read_of(record.reads)}" if record.reads else ""
    asked = record.canaries
    canaries = f"; canaries {one_line(asked.in_words)}" if asked and asked.dropped else ""
    return (
        f"{when}  {rows}  {texts}  {duration(record.took):>7}",
        f"{span}: {one_line(record.why)}{read}{canaries}",
    )
