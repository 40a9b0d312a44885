"""`lakewake setup`: fetch what pip cannot."""

from __future__ import annotations

import click

from lakewake.cli.flags import Flags, with_flags
from lakewake.cli.screen import print_block, print_json

EXAMPLE = "lakewake setup"


@click.option("--s3", is_flag=True, help="Also fetch what s3a:// tables need (282 MB).")
@click.option("--force", is_flag=True, help="Fetch everything again, even what is already there.")
@with_flags
def setup(s3: bool, force: bool, flags: Flags) -> int:
    """Fetch the model weights, the Hudi bundle and, if missing, Java. Needed once."""
    from lakewake import setup as provision

    done = provision.setup(flags.reporter(), s3=s3, force=force)
    if flags.json:
        print_json(done)
    elif not flags.quiet:
        print_block("lakewake is set up", [(k, v) for k, v in done.items() if v])
    return 0
