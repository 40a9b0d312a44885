"""What operators ask the syncing process to do, and how it ended."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lakewake.model.history import iso
from lakewake.model.rows import RowId
from lakewake.show.notebook import Shown


class JobKind(StrEnum):
    """What can be asked for. Nothing else is ever done."""

    SYNC = "sync"
    PLAN = "plan"
    VERIFY = "verify"
    RETRY = "retry"


class JobState(StrEnum):
    """How far a job is. `expired`: no process did it within an hour, and none will."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"


@dataclass(frozen=True)
class Job(Shown):
    """Something that an operator asked of the syncing process.

    Attributes:
        id: the beginning of its files' names; sorts by time.
        by: who asked.
        ended: when it was done or failed; None before.
        report: what the process reported, as `--json` prints it.
        error: the fact of the error it failed with, and its hint.
    """

    id: str
    index: str
    kind: JobKind
    by: str
    asked: datetime.datetime
    state: JobState
    ended: datetime.datetime | None = None
    report: Mapping[str, Any] | None = None
    error: str | None = None
    hint: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        return {
            "id": self.id,
            "index": self.index,
            "kind": self.kind.value,
            "by": self.by,
            "asked": iso(self.asked),
            "state": self.state.value,
            "ended": iso(self.ended) if self.ended else None,
            "report": None if self.report is None else dict(self.report),
            "error": self.error,
            "hint": self.hint,
        }


@dataclass(frozen=True)
class QuarantinedRow(Shown):
    """A row that the index does not hold, because it could not be embedded.

    Attributes:
        instant: the table commit whose version of the row was refused.
        attempts: how often it was tried.
    """

    row: RowId
    reason: str
    instant: str
    attempts: int

    def as_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        return {
            "key": self.row.key,
            "partition": self.row.partition,
            "reason": self.reason,
            "instant": self.instant,
            "attempts": self.attempts,
        }
