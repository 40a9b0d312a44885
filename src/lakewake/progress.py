"""Progress is data: stages report counts, and a reporter shows them or does not.

Everything is shown on one stream, stderr for the command line, so that stdout holds results only.
Stages may nest. Each is shown on its own and leaves one line when it succeeds, unless it was over
before anyone noticed it. A stage may have steps: a terminal shows them while they run, and they
leave no line.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO, runtime_checkable

from lakewake.show.plain import spelled_out
from lakewake.show.redact import without_secrets

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

#: Seconds between two lines of a running stage when there is no terminal.
LINE_EVERY = 10.0
#: A stage shorter than this leaves no line.
BRIEF = 0.5


class Stage(Protocol):
    """One running stage."""

    def advance(self, n: int) -> None:
        """Count `n` more as done."""


class Reporter(Protocol):
    """Where stages report to."""

    def stage(self, name: str, total: int | None = None) -> AbstractContextManager[Stage]:
        """Begin a stage, which ends with the context. `total` is None if it is not known."""

    def say(self, text: str) -> None:
        """Show one line."""


@runtime_checkable
class Watched(Protocol):
    """A reporter that a person watches: it also shows the steps of a stage."""

    def step(self, name: str, total: int | None = None) -> AbstractContextManager[Stage]:
        """Show a part of a stage until the context ends. It leaves no line.

        A step may begin in any thread. `total` is None if it is not known.
        """


def watched(reporter: Reporter) -> Watched | None:
    """The reporter, if a person watches it."""
    shown = reporter.shown if isinstance(reporter, Logged) else reporter
    return shown if isinstance(shown, Watched) else None


def step(reporter: Reporter, name: str, total: int | None = None) -> AbstractContextManager[Stage]:
    """A part of a stage, shown if a person watches."""
    found = watched(reporter)
    return found.step(name, total) if found else nullcontext(UNSEEN)


@dataclass(frozen=True)
class Counted:
    """How far some work is.

    Attributes:
        total: None if it is not known.
    """

    name: str
    done: int
    total: int | None


class Counting:
    """A stage that only counts, for others to look at."""

    def __init__(self, name: str, total: int | None = None) -> None:
        self._name, self._done, self._total = name, 0, total

    def advance(self, n: int) -> None:
        self._done += n

    @property
    def counted(self) -> Counted:
        """How far it is."""
        return Counted(self._name, self._done, self._total)


class Steps:
    """Shows as steps what somebody else counts. Close it at the end."""

    def __init__(self, shown: Watched) -> None:
        self._watched = shown
        self._open: dict[Hashable, tuple[ExitStack, Stage, int]] = {}

    def show(self, found: Mapping[Hashable, Counted]) -> None:
        """Show the newest counts: new steps begin, and those that are not there any more end."""
        for key in self._open.keys() - found.keys():
            self._open.pop(key)[0].close()
        for key, one in found.items():
            kept, stage, shown = self._open.get(key) or self._begun(one)
            # A count that went back is shown when it has caught up.
            done = max(shown, one.done if one.total is None else min(one.done, one.total))
            if done > shown:
                stage.advance(done - shown)
            self._open[key] = kept, stage, done

    def close(self) -> None:
        """End all steps."""
        self.show({})

    def _begun(self, one: Counted) -> tuple[ExitStack, Stage, int]:
        kept = ExitStack()
        return kept, kept.enter_context(self._watched.step(one.name, one.total)), 0


class Logged:
    """Shows what another reporter does, and logs the same lines.

    Args:
        shown: the other reporter. Only it shows steps: they leave no line.
        log: takes a line without its time.
    """

    def __init__(
        self,
        shown: Reporter,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shown, self._log = shown, log
        self.clock = clock

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        """A stage that both show. If it fails, it leaves no line: the error is the news."""
        logged = _LineStage(self._log, self.clock, name, total)
        with self.shown.stage(name, total) as shown:
            yield _Both(shown, logged)
        logged.finish()

    def say(self, text: str) -> None:
        self.shown.say(text)
        self._log(text)


class _Both:
    """One stage, shown twice."""

    def __init__(self, *stages: Stage) -> None:
        self._stages = stages

    def advance(self, n: int) -> None:
        for stage in self._stages:
            stage.advance(n)


def choose_reporter(stream: TextIO, *, quiet: bool = False) -> Reporter:
    """The reporter that suits the stream: bars on a terminal, lines elsewhere, or silence."""
    if quiet:
        return Silent()
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Terminal(stream)
    return Lines(stream)


def finished_line(name: str, done: int, seconds: float) -> str:
    """What a stage leaves behind: its name, count, time and rate."""
    if not done:
        return f"{name}: {seconds:.1f} s"
    return f"{name}: {done:,} in {seconds:.1f} s{_rate(done, seconds)}"


def running_line(name: str, done: int, total: int | None, seconds: float) -> str:
    """How far a stage is, for a screen that cannot draw a bar."""
    share = f" of {total:,} ({100 * done // total} %)" if total else ""
    left = time_left(done, total, seconds)
    return f"{name}: {done:,}{share}, {seconds:.0f} s{_rate(done, seconds)}{left and f', {left}'}"


def time_left(done: int, total: int | None, seconds: float) -> str:
    """`3 min left`, at the rate so far; '' if that is not known."""
    if not total or not 0 < done < total or seconds < BRIEF:
        return ""
    left = seconds * (total - done) / done
    if left < 100:
        return f"{left:.0f} s left"
    return f"{left / 60:.0f} min left" if left < 6000 else f"{left / 3600:.1f} h left"


def _rate(done: int, seconds: float) -> str:
    # Below a tenth of a second the rate says more about the clock than about the stage.
    return f", {per_second(done / seconds)}" if seconds >= 0.1 else ""


def per_second(rate: float) -> str:
    """`1,200/s`, and `0.4/s` for what is slow."""
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


class _SilentStage:
    def advance(self, n: int) -> None:
        pass


#: A stage that nobody sees.
UNSEEN = _SilentStage()


class Silent:
    """Reports nothing: the default of the Python API, and `--quiet`."""

    def stage(self, name: str, total: int | None = None) -> AbstractContextManager[Stage]:
        return nullcontext(UNSEEN)

    def say(self, text: str) -> None:
        pass


#: Has no state.
SILENT = Silent()


class _LineStage:
    """Counts, and writes a line if the last one was long ago."""

    def __init__(
        self,
        say: Callable[[str], None],
        clock: Callable[[], float],
        name: str,
        total: int | None,
    ) -> None:
        self._say, self._clock, self._name, self._total = say, clock, name, total
        self._began = self._last = clock()
        self._done = 0

    def advance(self, n: int) -> None:
        self._done += n
        now = self._clock()
        if now - self._last >= LINE_EVERY and self._done != self._total:
            self._last = now
            seconds = now - self._began
            self._say(running_line(self._name, self._done, self._total, seconds))

    def finish(self) -> None:
        seconds = self._clock() - self._began
        if seconds >= BRIEF:
            self._say(finished_line(self._name, self._done, seconds))


class Lines:
    """Plain lines, for logs and pipes: one when a stage ends, and one every ten seconds before."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self.clock = clock

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        """A stage that writes lines. If it fails, it leaves no line: the error is the news."""
        stage = _LineStage(self.say, self.clock, name, total)
        yield stage
        stage.finish()

    def say(self, text: str) -> None:
        print(spelled_out(without_secrets(text)), file=self._stream, flush=True)


class _Bar:
    """One bar of a rich display."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task
        self.done = 0

    def advance(self, n: int) -> None:
        self.done += n
        self._progress.advance(self._task, n)


class Terminal:
    """Bars with count, rate and time while a stage runs; one line each once it is done."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console

        self._clock = clock
        self._console = Console(file=stream, highlight=False)
        self._progress = _bars(self._console)
        self._running = 0
        self._lock = threading.Lock()

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        """A stage with a bar. If it fails, it leaves no line: the error is the news."""
        began = self._clock()
        with self._bar(name, total) as bar:
            yield bar
        seconds = self._clock() - began
        if seconds >= BRIEF:
            self.say(finished_line(name, bar.done, seconds))

    def step(self, name: str, total: int | None = None) -> AbstractContextManager[Stage]:
        """A bar that leaves no line, however the step ends."""
        return self._bar(name, total)

    @contextmanager
    def _bar(self, name: str, total: int | None) -> Iterator[_Bar]:
        # The display is drawn only while a stage runs: between stages the screen is the command's.
        with self._lock:
            if not self._running:
                self._progress.start()
            self._running += 1
        task = self._progress.add_task(name, total=total)
        try:
            yield _Bar(self._progress, task)
        finally:
            self._progress.remove_task(task)
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._progress.stop()

    def say(self, text: str) -> None:
        """One line, above the bars."""
        self._console.print(spelled_out(without_secrets(text)), markup=False, style="dim")


def _bars(console: Console) -> Progress:
    """A display that vanishes when its last stage ends."""
    from rich import progress as bars
    from rich.text import Text

    class Rate(bars.ProgressColumn):
        """How many per second."""

        def render(self, task: bars.Task) -> Text:
            return Text(per_second(task.speed) if task.speed else "", style="dim")

    class Count(bars.ProgressColumn):
        """How many, and of how many if that is known."""

        def render(self, task: bars.Task) -> Text:
            if task.total is None:
                return Text(f"{task.completed:,.0f}" if task.completed else "")
            return Text(f"{task.completed:,.0f} of {task.total:,.0f}")

    class Left(bars.ProgressColumn):
        """How long the rest takes at the rate so far."""

        def render(self, task: bars.Task) -> Text:
            total = None if task.total is None else int(task.total)
            return Text(time_left(int(task.completed), total, task.elapsed or 0.0), style="dim")

    return bars.Progress(
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(bar_width=24),
        Count(),
        Rate(),
        bars.TimeElapsedColumn(),
        Left(),
        console=console,
        transient=True,
    )
