"""The flags and arguments that commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click


@dataclass(frozen=True)
class Flags:
    """What a command prints, and which configuration it uses."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    config: Path | None = None


def with_flags(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command `--json`, `--quiet` and `--verbose`, passed to it as one `flags`.

    They come last in its help, so this is the decorator next to the function. If the command has
    `--config`, that goes into `flags` as well.
    """

    @click.option("--json", is_flag=True, help="Print one JSON object; messages go to stderr.")
    @click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
    @click.option("--verbose", "-v", is_flag=True, help="Show Spark's log, and tracebacks.")
    @wraps(command)
    def run(
        *, json: bool, quiet: bool, verbose: bool, config: Path | None = None, **own: Any
    ) -> int:
        return command(flags=Flags(json, quiet, verbose, config), **own)

    return run


config_option = click.option(
    "--config",
    "-c",
    type=Path,
    metavar="FILE",
    help="Configuration file; ./lakewake.toml unless given.",
)
name_argument = click.argument(
    "name", required=False, help="The index; all configured ones unless given."
)
