"""`lakewake mcp`: the indexes as tools for an assistant."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lakewake.cli.flags import Flags, config_option
from lakewake.cli.indexes import opened

EXAMPLE = "lakewake mcp --config lakewake.toml"
WAITING = "lakewake mcp: waiting for a client on stdin; Ctrl-C ends it"


@config_option
def mcp(config: Path | None) -> int:
    """Serve search, recommend and status to an assistant, by MCP over stdin and stdout."""
    from lakewake.mcp import serve

    # Stdout is the protocol's: no `--json`, and no progress.
    with opened(Flags(quiet=True, config=config)) as lake:
        if sys.stdin.isatty():
            click.echo(WAITING, err=True)
        serve(lake)
    return 0
