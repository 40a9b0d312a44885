"""The flags and arguments that commands share, and what the flags were set to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click


@dataclass(frozen=True)
class Flags:
    """How a command talks, and which configuration it uses."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    config: Path | None = None


def with_flags(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command `--json`, `--quiet` and `--verbose`; it gets them as one `flags`.

    They come last in its help, so this is the decorator next to the function. A `--config` of the
    command goes into `flags` as well.
    """

    @click.option("--json", is_flag=True, help="One JSON object on stdout; talk stays on stderr.")
    @click.option("--quiet", "-q", is_flag=True, help="No progress.")
    @click.option("--verbose", "-v", is_flag=True, help="Spark's own words too; traces of errors.")
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
    help="The configuration; ./lakewake.toml unless given.",
)
name_argument = click.argument(
    "name", required=False, help="One index; all of the configuration unless given."
)
