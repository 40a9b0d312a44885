"""What a demo shows on the screen, and its report."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakewake.errors import LakewakeError
from lakewake.show.plain import spelled_out

if TYPE_CHECKING:
    from rich.console import Console

    from lakewake.model.report import SyncReport

#: The column where text begins on a line, and how long lines are.
_INDENT, _WIDTH = 10, 80


class DemoError(LakewakeError):
    """Something the demo promises did not happen."""


@dataclass(frozen=True)
class Step:
    """One change to the table and its effects."""

    title: str
    figures: Mapping[str, Any]
    checks: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class DemoReport:
    """What the demo did, and the expectations that held."""

    folder: Path
    config: Path
    steps: tuple[Step, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The object that `demo --json` prints."""
        steps = [
            {"step": s.title, **s.figures, "checks": list(s.checks), "seconds": round(s.seconds, 3)}
            for s in self.steps
        ]
        return {
            "folder": str(self.folder),
            "config": str(self.config),
            "steps": steps,
            "seconds": round(self.seconds, 3),
        }


@dataclass
class Show:
    """The screen, and the steps shown on it so far."""

    console: Console
    steps: list[Step] = field(default_factory=list)

    @contextmanager
    def step(self, title: str) -> Iterator[Notes]:
        """Print a heading; the step then prints its notes."""
        self._print()
        self._print(f"{len(self.steps) + 1}  {title}", style="bold")
        notes = Notes(self.console)
        began = time.monotonic()
        yield notes
        self.steps.append(Step(title, notes.figures, tuple(notes.checks), time.monotonic() - began))

    def end(self, report: DemoReport, commands: Sequence[str]) -> None:
        """Print how it went, and what to run next."""
        checks = sum(len(s.checks) for s in report.steps)
        self._print()
        self._print(f"All {checks} expectations held, {report.seconds:.0f} s. Try next:", "bold")
        for command in commands:
            self._print(f"  {command.replace('lakewake', called(), 1)}")

    def _print(self, text: str = "", style: str = "") -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def called() -> str:
    """How to call this program from here: by its name if the shell finds it."""
    program = Path(sys.argv[0])
    if program.name != "lakewake" or shutil.which("lakewake") or not program.is_file():
        return "lakewake"
    return shlex.quote(str(program))


@dataclass
class Notes:
    """What one step did and found."""

    console: Console
    figures: dict[str, Any] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)

    def table_changed(self, what: str, seconds: float) -> None:
        """Show what was done to the table."""
        self._line("table", f"{what} ({milliseconds(seconds)})")

    def synced(self, report: SyncReport) -> None:
        """Show and keep the figures of a sync."""
        self.figures["sync"] = report.as_dict()
        rows = f"{report.rows_changed:,} changed, {report.rows_deleted:,} deleted"
        texts = f"{report.embedded:,} embedded"
        took = milliseconds(report.seconds.get("total", sum(report.seconds.values())))
        self._line("sync", f"{report.action.value}: {rows}, {texts} ({took})")

    def expect(self, holds: bool, what: str) -> None:
        """Show an expectation that holds.

        Raises:
            DemoError: it does not hold.
        """
        if not holds:
            hint = "this is a bug: please report it with the output above"
            landed = "the demo's table and index stay in its folder"
            raise DemoError(f"the demo expected: {what}", landed=landed, hint=hint)
        self.checks.append(what)
        self._line("✓", what)

    def say(self, name: str, text: str) -> None:
        """Show a longer text, on as many lines as it takes."""
        lines = textwrap.wrap(text, _WIDTH - _INDENT, break_on_hyphens=False) or [""]
        self._line(name, lines[0])
        for line in lines[1:]:
            self._line("", line)

    def compare(self, rows: list[tuple[str, str, str]]) -> None:
        """Show a small table of before and after."""
        from rich.table import Table
        from rich.text import Text

        grid = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
        for title in ("       ", "before", "after"):
            grid.add_column(title)
        for name, before, after in rows:
            grid.add_row(Text(f"   {name}"), Text(spelled_out(before)), Text(spelled_out(after)))
        self.console.print(grid)

    def _line(self, name: str, text: str) -> None:
        style = "green" if name == "✓" else ""
        self.console.print(
            f"   {name:<6} {spelled_out(text)}", style=style, markup=False, highlight=False
        )


def milliseconds(seconds: float) -> str:
    """`320 ms`, or `12.5 s`."""
    return f"{1000 * seconds:,.0f} ms" if seconds < 10 else f"{seconds:.1f} s"
