"""`lakewake demo`: watch an index follow its table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lakewake.cli.flags import Json, Quiet, Verbose
from lakewake.cli.screen import open_console, print_json
from lakewake.progress import choose_reporter

EXAMPLE = "lakewake demo --csv winemag-data-130k-v2.csv --rows 5000"


def demo(
    folder: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Where table and index go; a former demo is replaced."),
    ] = Path("lakewake-demo"),
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The real wine-review CSV, not sample rows.")
    ] = None,
    rows: Annotated[int, typer.Option(min=10, help="How many wine reviews.")] = 2000,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Watch an index follow its table.

    Makes a sample table and an index, changes some rows, and checks every step.
    """
    from lakewake.demo import DemoRequest, run_demo

    reporter = choose_reporter(sys.stderr, quiet=quiet)
    console = open_console(sys.stderr if json else sys.stdout)
    console.quiet = quiet
    report = run_demo(DemoRequest(folder, csv, rows, verbose), reporter, console)
    if json:
        print_json(report.as_dict())
    return 0
