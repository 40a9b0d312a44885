"""Every way a command can fail, as one kind of error and one way to show it.

With `--json` the error is the one object on stdout (`{"error", "fact", "landed", "hint"}`). The
text for people goes to stderr either way.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import click

from lakewake.errors import ConfigError, LakewakeError
from lakewake.extras import not_installed
from lakewake.show.plain import spelled_out
from lakewake.show.redact import without_secrets

#: Commands that never write, so nothing can be left behind when they are interrupted.
READING = frozenset(
    {"eval", "history", "list", "mcp", "plan", "recommend", "search", "status", "verify"}
)
WHOLE_OR_NOTHING = "earlier commits stand, and nothing was written partly"


class InterruptError(LakewakeError):
    """Ctrl-C."""

    exit_code = 130


class Terminated(SystemExit):
    """SIGTERM: ends a command as Ctrl-C does, past every `except Exception`."""


class TerminateError(LakewakeError):
    """The command was ended from outside."""

    exit_code = 143


class BugError(LakewakeError):
    """An error that this code did not foresee."""


def explain(error: BaseException, args: Sequence[str]) -> LakewakeError:
    """Turn any exception of a command into an error with a fact, what landed and a hint."""
    if isinstance(error, LakewakeError):
        return error
    if isinstance(error, click.ClickException):
        return _misused(error)
    if isinstance(error, ImportError) and (absent := not_installed(error)):
        return absent
    reads = bool(READING & set(args[:1])) and "--repair" not in args
    landed = "nothing was written" if reads else WHOLE_OR_NOTHING
    if isinstance(error, KeyboardInterrupt | Terminated):
        # A stopped sync reports exactly what landed.
        landed = "; ".join(getattr(error, "__notes__", ())) or landed
        hint = "run the same command again to continue from there"
        if isinstance(error, Terminated):
            return TerminateError("terminated", landed=landed, hint=hint)
        return InterruptError("interrupted", landed=landed, hint=hint)
    first_line = f"{type(error).__name__}: {error}".splitlines()[0]
    return BugError(
        first_line,
        landed=landed,
        hint="run it again with -v and report the traceback: this is a bug",
    )


def _misused(error: click.ClickException) -> ConfigError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "lakewake"
    return ConfigError(error.format_message().rstrip("."), hint=f"`{path} --help` shows the usage")


def print_error(
    error: LakewakeError, index: str = "", *, trace: BaseException | None = None
) -> None:
    """Print the error for a person, on stderr.

    Args:
        index: the index's name, if there are several.
        trace: the exception whose traceback is printed first, if any.
    """
    if logs := sys.modules.get("lakewake.cli.logs"):
        logs.log_error(error, index, trace)
    if trace is not None:
        # It also holds the messages of other libraries, which nothing has redacted yet.
        print(without_secrets("".join(traceback.format_exception(trace))), end="", file=sys.stderr)
    # It may hold names or values from a table, which must not end a line or control the terminal.
    shown = LakewakeError(
        spelled_out(error.fact), landed=spelled_out(error.landed), hint=spelled_out(error.hint)
    )
    print(f"error: {f'{index}: ' if index else ''}{shown}", file=sys.stderr)
