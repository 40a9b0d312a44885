"""`lakewake plan`: what the next sync would do, and how much it would embed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakewake.cli.flags import Flags, config_option, name_argument, with_flags
from lakewake.cli.indexes import run_each
from lakewake.cli.screen import count, moment, print_block

if TYPE_CHECKING:
    from lakewake.model.report import PlanReport

EXAMPLE = "lakewake plan wines"


@name_argument
@click.option("--rebuild", is_flag=True, help="Show what `sync --rebuild` would do and embed.")
@config_option
@with_flags
def plan(name: str | None, rebuild: bool, flags: Flags) -> int:
    """Show what a sync would do, and why. Counts the texts to embed; writes nothing."""
    return run_each(flags, name, lambda i: i.plan(rebuild=rebuild), show_plan)


def show_plan(report: PlanReport) -> None:
    """Print one plan."""
    facts = [("why", report.why)]
    if report.pending:
        facts += [("commits", ", ".join(moment(p) for p in report.pending))]
    if report.action.value != "nothing":
        rows = f"{count(report.rows_changed, 'row')} to write, {report.rows_deleted:,} to delete"
        texts = f"{count(report.to_embed, 'text')} to embed, {report.reused:,} reused"
        facts += [("rows", rows), ("texts", texts)]
    if report.new_generation and report.action.value == "reconcile":
        facts.append(("index", "written again from the whole table: a column changed its type"))
    if report.refused:
        facts.append(("refused", f"{report.refused}; `sync --allow-deletes` allows it"))
    print_block(f"{report.index}: {report.action.value}", facts)
