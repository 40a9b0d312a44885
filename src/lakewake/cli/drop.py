"""`lakewake drop`: remove an index with all that belongs to it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lakewake.cli.flags import Flags, argument, config_option, with_flags
from lakewake.cli.indexes import opened
from lakewake.cli.screen import print_block, print_json
from lakewake.errors import ConfigError

if TYPE_CHECKING:
    from lakewake.model.drop import DropReport

EXAMPLE = "lakewake drop wines --dry-run"


@argument("name", help="The index, by its name in the configuration.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@config_option
@with_flags
def drop(name: str, yes: bool, dry_run: bool, flags: Flags) -> int:
    """Remove an index with its generations and its history.

    The table and the vector cache stay, and so does the index's section in the configuration. A
    sync that runs at the same time fails. If this is interrupted, run it again.
    """
    with opened(flags) as lake:
        index = lake[name]
        report = index.drop(dry_run=True)
        if not dry_run and report.removed:
            if not yes:
                _ask(report, flags)
            report = index.drop()
    if flags.json:
        print_json(report.as_dict())
    else:
        show_drop(report)
    return 0


def _ask(report: DropReport, flags: Flags) -> None:
    """Show what would be removed, and go on only if the answer is yes.

    Raises:
        ConfigError: nobody can be asked.
        click.Abort: the answer is no.
    """
    if flags.json or not sys.stdin.isatty():
        raise ConfigError(
            f"`lakewake drop {report.index}` asks before it removes anything, and there is no "
            "terminal to ask on",
            hint=f"run `lakewake drop {report.index} --yes`; --dry-run only shows what it would do",
        )
    show_drop(report)
    if not click.confirm(f"Remove index '{report.index}'?", err=True):
        raise click.exceptions.Exit(1)


def show_drop(report: DropReport) -> None:
    """Print what was removed, or would be."""
    state = "dropped" if report.removed else "nothing to drop"
    if report.dry_run and report.removed:
        state = "would be dropped"
    print_block(f"{report.index}: {state}", drop_facts(report))


def drop_facts(report: DropReport) -> list[tuple[str, str]]:
    """What a drop does, as lines of `name  value`."""
    removes = "would remove" if report.dry_run else "removed"
    facts = [(removes, address) for address in report.removed]
    if report.vector_cache:
        users = ", ".join(report.shared_with)
        facts.append(
            (
                "stays",
                f"{report.vector_cache}: the vector cache, used by {users}"
                if users
                else f"{report.vector_cache}: the vector cache; no other index here uses it",
            )
        )
    facts += [("stays", f"{mark}: keeps a running sync from undoing this") for mark in report.marks]
    facts += [("stays", f"{other}: is not Lakewake's") for other in report.foreign]
    return facts
