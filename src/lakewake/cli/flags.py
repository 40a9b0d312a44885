"""The flags that commands share, and what they were set to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="The configuration; ./lakewake.toml unless given."
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout; talk stays on stderr.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Spark's own words too; traces of errors.")
]
Name = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="One index; all of the configuration unless given."),
]


@dataclass(frozen=True)
class Flags:
    """How a command talks, and which configuration it uses."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    config: Path | None = None
