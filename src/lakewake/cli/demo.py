"""`lakewake demo`: watch an index follow its table."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lakewake.cli.flags import Flags, with_flags
from lakewake.cli.screen import print_json
from lakewake.errors import ConfigError

EXAMPLE = "lakewake demo --csv winemag-data-130k-v2.csv --rows 5000"


@click.option(
    "--shop", is_flag=True, help="Show a shop instead: products change, and answers follow."
)
@click.option(
    "--folder",
    type=Path,
    metavar="DIR",
    help="Folder for table and index; replaces an earlier demo.  [default: lakewake-demo, or "
    "lakewake-shop]",
)
@click.option(
    "--csv",
    type=Path,
    metavar="FILE",
    help="Use the wine reviews of this file: winemag-data-130k-v2.csv.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=10),
    metavar="N",
    help="Number of wine reviews or products.  [default: 2000, or 400]",
)
@with_flags
def demo(shop: bool, folder: Path | None, csv: Path | None, rows: int | None, flags: Flags) -> int:
    """Watch an index follow its table.

    Creates a sample table and an index, changes some rows, and checks every step.
    """
    from rich.console import Console

    from lakewake.demo import DemoRequest, run_demo
    from lakewake.demo.shop import ROWS, run_shop_demo

    if shop and csv is not None:
        raise ConfigError("--shop and --csv cannot be combined", hint="leave out --csv")
    reporter = flags.reporter()
    stream = sys.stderr if flags.json else sys.stdout
    console = Console(file=stream, quiet=flags.quiet, highlight=False, markup=False, emoji=False)
    location = folder or Path("lakewake-shop" if shop else "lakewake-demo")
    request = DemoRequest(location, csv, rows or (ROWS if shop else 2000), flags.verbose)
    report = (run_shop_demo if shop else run_demo)(request, reporter, console)
    if flags.json:
        print_json(report.as_dict())
    return 0
