"""`lakewake demo`: watch an index follow its table."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lakewake.cli.flags import Flags, with_flags
from lakewake.cli.screen import print_json
from lakewake.progress import choose_reporter

EXAMPLE = "lakewake demo --csv winemag-data-130k-v2.csv --rows 5000"


@click.option(
    "--folder",
    type=Path,
    default=Path("lakewake-demo"),
    metavar="DIR",
    help="Where table and index go; a former demo is replaced.",
)
@click.option("--csv", type=Path, metavar="FILE", help="The real wine-review CSV, not sample rows.")
@click.option(
    "--rows",
    type=click.IntRange(min=10),
    default=2000,
    metavar="N",
    help="How many wine reviews.",
)
@with_flags
def demo(folder: Path, csv: Path | None, rows: int, flags: Flags) -> int:
    """Watch an index follow its table.

    Makes a sample table and an index, changes some rows, and checks every step.
    """
    from rich.console import Console

    from lakewake.demo import DemoRequest, run_demo

    reporter = choose_reporter(sys.stderr, quiet=flags.quiet)
    stream = sys.stderr if flags.json else sys.stdout
    console = Console(file=stream, quiet=flags.quiet, highlight=False, markup=False, emoji=False)
    report = run_demo(DemoRequest(folder, csv, rows, flags.verbose), reporter, console)
    if flags.json:
        print_json(report.as_dict())
    return 0
