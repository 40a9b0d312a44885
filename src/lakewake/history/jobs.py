"""What operators ask of the syncing process: small files in the folder of the history.

    wines.history/20250301T120001123456Z.5f0c2a1b.verify.asked.json   a server writes it
    wines.history/20250301T120001123456Z.5f0c2a1b.verify.taken.json   the process that does it
    wines.history/20250301T120001123456Z.5f0c2a1b.verify.done.json    its report, or its error

A file is written once, and never changed. It names one of four kinds of work and takes no argument.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import uuid4

from lakewake.errors import LakewakeError, StoreError
from lakewake.model.history import iso
from lakewake.model.jobs import Job, JobKind, JobState
from lakewake.show.redact import cleaned, without_secrets

FORMAT = 1
#: How many jobs of an index are kept; older ones are removed when the next is asked for.
KEPT = 20
#: A job that nobody did for this long is not done any more: a watch that begins later must not
#: read a whole table because of it.
EXPIRES = timedelta(hours=1)
#: A job that was begun and not ended for this long: its process has died.
ABANDONED = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The most characters of a name that are kept.
NAMED = 200
KINDS = "|".join(JobKind)
NAME = re.compile(rf"(\d{{8}}T\d{{12}}Z\.[0-9a-f]{{8}})\.({KINDS})\.(asked|taken|done)\.json")


class Files(Protocol):
    """What is needed of a `Location`."""

    @property
    def hint(self) -> str: ...

    def prepare(self, folder: str = "") -> None: ...

    def names(self, folder: str = "") -> list[str]: ...

    def read(self, name: str) -> bytes | None: ...

    def create(self, name: str, content: bytes) -> bool: ...

    def discard(self, folder: str, names: list[str]) -> None: ...


class MemoryFiles:
    """Files that last as long as the process."""

    hint = ""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def prepare(self, folder: str = "") -> None:
        """Nothing: there are no folders."""

    def names(self, folder: str = "") -> list[str]:
        inside = f"{folder}/"
        return [n.removeprefix(inside) for n in list(self._files) if n.startswith(inside)]

    def read(self, name: str) -> bytes | None:
        return self._files.get(name)

    def create(self, name: str, content: bytes) -> bool:
        return self._files.setdefault(name, content) is content

    def discard(self, folder: str, names: list[str]) -> None:
        for name in names:
            self._files.pop(f"{folder}/{name}", None)


class Jobs:
    """The jobs of one index. Several servers and several watches may use it at once."""

    def __init__(
        self, index: str, files: Files, folder: str, now: Callable[[], datetime] | None = None
    ) -> None:
        self._index, self._files, self._folder = index, files, folder
        self._now = now or (lambda: datetime.now(UTC))
        # What has ended does not change any more.
        self._ended: dict[str, Job] = {}

    def ask(self, kind: JobKind, by: str) -> Job:
        """Ask for a job. If the same kind is waiting already, that one is returned.

        Raises:
            StoreError: it cannot be written.
        """
        with self._reaching("written"):
            found = self._all()
            waiting = [j for j in found if j.kind is kind and j.state is JobState.WAITING]
            if waiting:
                return waiting[0]
            asked = self._now()
            name = f"{asked.astimezone(UTC):%Y%m%dT%H%M%S%f}Z.{uuid4().hex[:8]}"
            self._create(name, kind, "asked", {"by": by[:NAMED]})
            self._forget(found[KEPT - 1 :])
        return Job(name, self._index, kind, by[:NAMED], asked, JobState.WAITING)

    def newest(self, limit: int) -> tuple[Job, ...]:
        """The last jobs, newest first.

        Raises:
            StoreError: they cannot be read.
        """
        with self._reaching("read"):
            return tuple(self._all()[:limit])

    def take(self) -> Job | None:
        """The oldest waiting job, which is now this process's alone; None if there is none.

        Raises:
            StoreError: they cannot be read.
        """
        with self._reaching("read"):
            # Reads no file if nobody asked for anything, which is nearly always.
            for name, kind, states in sorted(self._listed()):
                waits = states == {"asked"} and not self._is_old(name)
                if waits and self._create(name, kind, "taken", {}):
                    return self._job(name, kind, states | {"taken"})
        return None

    def finish(self, job: Job, report: Mapping[str, Any]) -> None:
        """Keep the report of a job that was taken."""
        self._done(job, {"report": cleaned(dict(report))})

    def fail(self, job: Job, error: Exception) -> None:
        """Keep the error that a job ended with."""
        if isinstance(error, LakewakeError):
            fact, hint = error.fact, error.hint
        else:
            fact, hint = f"{type(error).__name__}: {error}".splitlines()[0], ""
        self._done(job, {"error": without_secrets(fact), "hint": without_secrets(hint)})

    def _done(self, job: Job, content: Mapping[str, Any]) -> None:
        with self._reaching("written"):
            self._create(job.id, job.kind, "done", {"ended": iso(self._now()), **content})

    def _create(self, name: str, kind: JobKind, what: str, content: Mapping[str, Any]) -> bool:
        file = f"{self._folder}/{name}.{kind.value}.{what}.json"
        text = json.dumps({"format": FORMAT, **content}, ensure_ascii=False, default=str)
        written = text.encode("utf-8", "replace")
        try:
            return self._files.create(file, written)
        except FileNotFoundError:
            self._files.prepare(self._folder)
            return self._files.create(file, written)

    def _listed(self) -> list[tuple[str, JobKind, set[str]]]:
        """Name, kind and files of each job."""
        found: dict[tuple[str, str], set[str]] = {}
        for file in self._files.names(self._folder):
            if (named := NAME.fullmatch(file)) and _time_of(named[1]):
                found.setdefault((named[1], named[2]), set()).add(named[3])
        return [(name, JobKind(kind), states) for (name, kind), states in found.items()]

    def _all(self) -> list[Job]:
        listed = sorted((one for one in self._listed() if "asked" in one[2]), reverse=True)
        self._ended = {n: self._ended[n] for n, *_ in listed if n in self._ended}
        return [self._ended.get(one[0]) or self._job(*one) for one in listed]

    def _job(self, name: str, kind: JobKind, states: set[str]) -> Job:
        by = str(self._content(name, kind, "asked").get("by", ""))
        job = Job(name, self._index, kind, by, _time_of(name) or EPOCH, self._state(name, states))
        if "done" not in states:
            return job
        content = self._content(name, kind, "done")
        report, error = content.get("report"), content.get("error")
        if not isinstance(report, dict):
            report, error = None, str(error or "what became of it cannot be read")
        self._ended[name] = replace(
            job,
            state=JobState.FAILED if error else JobState.DONE,
            ended=_parsed(content.get("ended")),
            report=report,
            error=error,
            hint=str(content.get("hint", "")),
        )
        return self._ended[name]

    def _state(self, name: str, states: set[str]) -> JobState:
        if "taken" in states:
            return JobState.EXPIRED if self._is_old(name, ABANDONED) else JobState.RUNNING
        return JobState.EXPIRED if self._is_old(name) else JobState.WAITING

    def _content(self, name: str, kind: JobKind, what: str) -> dict[str, Any]:
        content = self._files.read(f"{self._folder}/{name}.{kind.value}.{what}.json")
        try:
            value = json.loads(content or b"{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def _is_old(self, name: str, limit: timedelta = EXPIRES) -> bool:
        return self._now() - (_time_of(name) or EPOCH) > limit

    def _forget(self, jobs: list[Job]) -> None:
        over = [job for job in jobs if job.state not in (JobState.WAITING, JobState.RUNNING)]
        files = [
            f"{j.id}.{j.kind.value}.{w}.json" for j in over for w in ("asked", "taken", "done")
        ]
        if files:
            self._files.discard(self._folder, files)

    @contextmanager
    def _reaching(self, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"the jobs of index '{self._index}' cannot be {done}: {error}",
                hint=self._files.hint or "check that the folder of its history is writable",
            ) from error


def _time_of(name: str) -> datetime | None:
    """When a job was asked for; None if no clock has shown that."""
    try:
        return datetime.strptime(name[:21], "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)
    except ValueError:
        return None


def _parsed(time: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(time))
    except ValueError:
        return None
