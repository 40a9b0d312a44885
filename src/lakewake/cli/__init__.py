"""The command line: `lakewake COMMAND`, one file for each.

Exit codes: 0 fine, 1 failed, 2 usage or configuration, 3 out of step or too many deletes,
130 interrupted, 143 terminated.
With `--json` stdout holds exactly one object, also for an error
(`{"error", "fact", "landed", "hint"}`); messages for people then go to stderr.
This module imports only what every command needs, so that `lakewake --help` answers at once.
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from types import FrameType
from typing import Any, NoReturn

import click

from lakewake.cli import (
    demo,
    drop,
    evaluate,
    history,
    ingest,
    init,
    keys,
    listing,
    mcp,
    plan,
    recommend,
    rename,
    search,
    serve,
    setup,
    status,
    sync,
    verify,
)
from lakewake.cli.failure import Terminated, explain, print_error
from lakewake.cli.screen import discreet, print_json

#: 128 + SIGPIPE, what a shell reports for a program whose reader went away.
READER_GONE = 141


class InOrder(click.Group):
    """A group whose help lists the commands in the order they were added, not alphabetically."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    name="lakewake",
    cls=InOrder,
    epilog="Example: lakewake demo",
    context_settings={"help_option_names": ["--help", "-h"], "show_default": True},
)
@click.version_option(
    package_name="lakewake", message="%(prog)s %(version)s", help="Show the version and exit."
)
def app() -> None:
    """Vector indexes that follow your Apache Hudi table, commit by commit."""


COMMANDS: tuple[tuple[Callable[..., int], str], ...] = (
    (setup.setup, setup.EXAMPLE),
    (demo.demo, demo.EXAMPLE),
    (ingest.ingest, ingest.EXAMPLE),
    (init.init, init.EXAMPLE),
    (plan.plan, plan.EXAMPLE),
    (sync.sync, sync.EXAMPLE),
    (status.status, status.EXAMPLE),
    (listing.list, listing.EXAMPLE),
    (history.history, history.EXAMPLE),
    (search.search, search.EXAMPLE),
    (evaluate.eval, evaluate.EXAMPLE),
    (recommend.recommend, recommend.EXAMPLE),
    (verify.verify, verify.EXAMPLE),
    (rename.rename, rename.EXAMPLE),
    (drop.drop, drop.EXAMPLE),
    (serve.serve, serve.EXAMPLE),
    (keys.keys, keys.EXAMPLE),
    (mcp.mcp, mcp.EXAMPLE),
)
for _command, _example in COMMANDS:
    app.command(epilog=f"\b\nExample:\n  {_example}")(_command)


def main() -> None:
    """The `lakewake` executable."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character must not turn a result into an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = discreet(sys.stderr)
    # A terminated command still removes its temporary files.
    signal.signal(signal.SIGTERM, _terminated)
    _leave(run(sys.argv[1:]))


def _terminated(number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated(128 + number)


def _leave(code: int) -> NoReturn:
    """Exit without waiting for storage that does not answer."""
    deadline = sys.modules.get("lakewake.net.deadline")
    if deadline is None or not deadline.still_asking():
        sys.exit(code)
    from pyarrow import fs

    # Arrow would wait for the abandoned request, for as long as its retries take.
    atexit.unregister(fs.ensure_s3_finalized)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    # Lance warns about empty partitions and the like, which a user can do nothing about.
    os.environ.setdefault("LANCE_LOG", "error")
    if find_spec("onnxruntime") is None:
        # numpy runs the model. For one question its threads cost more than they bring.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("LAKEWAKE_THREADS") or "1")
    try:
        code = _invoke(list(args) or ["--help"])
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _drop_output()
        return READER_GONE
    except click.exceptions.Exit as asked:
        return asked.exit_code
    except (Exception, KeyboardInterrupt, Terminated) as error:
        return _fail(error, args)


def _invoke(args: list[str]) -> int:
    # Not `app(args)`: it would turn Ctrl-C, broken pipes and usage errors into its own exits.
    plain = os.environ.get("TERM", "dumb") == "dumb"
    with app.make_context("lakewake", args, color=False if plain else None) as context:
        code: Any = app.invoke(context)
    return code if isinstance(code, int) else 0


def _fail(error: BaseException, args: Sequence[str]) -> int:
    failure = explain(error, args)
    verbose = bool({"-v", "--verbose"} & set(args))
    if "--json" in args:
        print_json(failure.as_dict())
    print_error(failure, trace=error if verbose else None)
    return failure.exit_code


def _drop_output() -> None:
    """Send the interpreter's last flush to /dev/null: nobody reads stdout any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
