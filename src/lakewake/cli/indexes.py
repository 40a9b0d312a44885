"""Run a command on one index or on all: shared by plan, sync, status, history and verify."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lakewake.cli.failure import print_error
from lakewake.cli.flags import Flags
from lakewake.cli.screen import print_json
from lakewake.errors import ConfigError, LakewakeError

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

    reporter = flags.reporter()
    with lakewake.open(flags.config, reporter=reporter, verbose=flags.verbose) as lake:
        yield lake


@contextmanager
def opened_at(address: str, flags: Flags) -> Iterator[Index]:
    """Open the index at an address, without a configuration."""
    import lakewake

    if flags.config is not None:
        raise ConfigError(
            "an index at an address is opened without a configuration",
            hint="leave out --config, or name the index instead of its address",
        )
    reporter = flags.reporter()
    with lakewake.open_index(address, reporter=reporter) as index:
        yield index


def chosen(lake: Lakewake, name: str | None) -> list[Index]:
    """The named index, or all."""
    return [index_named(lake, n) for n in ([name] if name else lake.names)]


def index_named(lake: Lakewake, name: str) -> Index:
    """The index with this name, or the one that is stored under it: messages of a store name it."""
    renamed = {index.settings.stored_as: n for n, index in lake.items()}
    return lake[name if name in lake else renamed.get(name, name)]


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
    with opened(flags) as lake:
        jobs = {index.name: partial(job, index) for index in chosen(lake, name)}
        return run_jobs(flags, jobs, show, code)


def run_jobs(
    flags: Flags,
    jobs: Mapping[str, Callable[[], R]],
    show: Callable[[R], None],
    code: Callable[[R], int] = lambda _: 0,
) -> int:
    """The same for any jobs, by the name of the index that each is about."""
    reports, failures = [], []
    for name, job in jobs.items():
        try:
            report = job()
        except LakewakeError as error:
            failures.append((name, error))
            print_error(
                error, name if len(jobs) > 1 else "", trace=error if flags.verbose else None
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
