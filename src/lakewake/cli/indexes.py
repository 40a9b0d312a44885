"""Run a command on one index or on all: shared by plan, sync, status, history and verify."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lakewake.cli.failure import print_error
from lakewake.cli.flags import Flags
from lakewake.cli.screen import print_json
from lakewake.errors import LakewakeError
from lakewake.progress import choose_reporter

if TYPE_CHECKING:
    from lakewake.api import Index, Lakewake


class Report(Protocol):
    """The result of a command for one index."""

    def as_dict(self) -> dict[str, Any]:
        """The object for `--json`."""


R = TypeVar("R", bound=Report)


@contextmanager
def opened(flags: Flags) -> Iterator[Lakewake]:
    """Open the configured indexes, and close them afterwards."""
    import lakewake

    reporter = choose_reporter(sys.stderr, quiet=flags.quiet)
    with lakewake.open(flags.config, reporter=reporter, verbose=flags.verbose) as lake:
        yield lake


def chosen(lake: Lakewake, name: str | None) -> list[Index]:
    """The named index, or all."""
    return [lake[n] for n in ([name] if name else lake.names)]


def run_each(
    flags: Flags,
    name: str | None,
    job: Callable[[Index], R],
    show: Callable[[R], None],
    code: Callable[[R], int] = lambda _: 0,
) -> int:
    """Run the job on each index, show its report, and return the exit code.

    The exit code is that of the first failure, if any. An index that fails does not stop the
    others. With `--json` the first failure is printed beside the reports of the rest.
    """
    reports, failures = [], []
    with opened(flags) as lake:
        indexes = chosen(lake, name)
        for index in indexes:
            try:
                report = job(index)
            except LakewakeError as error:
                failures.append((index.name, error))
                print_error(
                    error,
                    index.name if len(indexes) > 1 else "",
                    trace=error if flags.verbose else None,
                )
                continue
            reports.append(report)
            if not flags.json:
                show(report)
    if flags.json:
        first = {"index": failures[0][0], **failures[0][1].as_dict()} if failures else {}
        print_json({"indexes": [r.as_dict() for r in reports], **first})
    if failures:
        return failures[0][1].exit_code
    return max(map(code, reports), default=0)
