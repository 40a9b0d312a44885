"""The flags and arguments that commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import click

from lakewake.progress import Logged, Reporter, choose_reporter

#: From the most lines to the fewest.
LEVELS = ("debug", "info", "warning", "error")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Flags:
    """What a command prints, and which configuration it uses.

    Attributes:
        log: the flags that make another process write to the same log.
    """

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    config: Path | None = None
    log: tuple[str, ...] = ()

    def reporter(self) -> Reporter:
        """The reporter of this command's progress, on standard error and in the log."""
        shown = choose_reporter(sys.stderr, quiet=self.quiet)
        logs = sys.modules.get("lakewake.cli.logs")
        return Logged(shown, logs.log_line) if logs and logs.started() else shown


def with_flags(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command `--json`, `--quiet`, `--verbose` and a log, passed to it as one `flags`.

    They come last in its help, so this is the decorator next to the function. If the command has
    `--config`, that goes into `flags` as well.
    """

    @click.option("--json", is_flag=True, help="Print one JSON object; messages go to stderr.")
    @click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
    @click.option("--verbose", "-v", is_flag=True, help="Show Spark's log, and tracebacks.")
    @click.option(
        "--log-file",
        type=Path,
        metavar="FILE",
        envvar="LAKEWAKE_LOG_FILE",
        help="Append what the command reports to this file, as lines of JSON.",
    )
    @click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default="info",
        envvar="LAKEWAKE_LOG_LEVEL",
        help="Leave out less important lines of --log-file.",
    )
    @wraps(command)
    def run(
        *,
        json: bool,
        quiet: bool,
        verbose: bool,
        log_file: Path | None,
        log_level: str,
        config: Path | None = None,
        **own: Any,
    ) -> int:
        log: tuple[str, ...] = ()
        if log_file is not None:
            from lakewake.cli import logs

            logs.start(log_file, log_level)
            log = "--log-file", str(log_file), "--log-level", log_level
        return command(flags=Flags(json, quiet, verbose, config, log), **own)

    return run


def argument(name: str, *, help: str, **given: Any) -> Callable[[Command], Command]:
    """An argument with a line of help, which click before 8.5 does not show."""
    shown: dict[str, Any] = (
        {"help": help} if "help" in signature(click.Argument.__init__).parameters else {}
    )
    return click.argument(name, **shown, **given)


config_option = click.option(
    "--config",
    "-c",
    type=Path,
    metavar="FILE",
    help="Configuration file; $LAKEWAKE_CONFIG or ./lakewake.toml unless given.",
)
name_argument = argument(
    "name", required=False, help="The index; all configured ones unless given."
)
