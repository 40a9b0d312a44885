"""`lakewake mcp`: offer the indexes to an assistant as tools."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lakewake.cli.flags import Flags, config_option
from lakewake.cli.indexes import opened

EXAMPLE = "lakewake mcp --config lakewake.toml"
WAITING = "lakewake mcp: waiting for a client on stdin; Ctrl-C stops"


@config_option
def mcp(config: Path | None) -> int:
    """Serve the indexes to an assistant over MCP.

    The tools are search, similar, read, recommend, status and list_indexes. The protocol runs on
    stdin and stdout.
    """
    from lakewake.mcp import serve

    # Stdout belongs to the protocol: no `--json` and no progress.
    with opened(Flags(quiet=True, config=config)) as lake:
        if sys.stdin.isatty():
            click.echo(WAITING, err=True)
        serve(lake)
    return 0
