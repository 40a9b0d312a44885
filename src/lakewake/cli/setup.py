"""`lakewake setup`: what pip cannot fetch."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lakewake.cli.flags import Json, Quiet, Verbose
from lakewake.cli.screen import print_block, print_json
from lakewake.progress import choose_reporter

EXAMPLE = "lakewake setup"


def setup(
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is there.")] = False,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Fetch model weights, the Hudi bundle and, where missing, Java. Once; by name."""
    from lakewake import setup as provision

    done = provision.setup(choose_reporter(sys.stderr, quiet=quiet), force=force)
    if json:
        print_json(done)
    elif not quiet:
        print_block("lakewake is set up", [(k, v) for k, v in done.items() if v])
    return 0
