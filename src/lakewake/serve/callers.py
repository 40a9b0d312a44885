"""Who asks, and what they may see: the one place where a key or token becomes a right."""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from lakewake.errors import ConfigError, LakewakeError
from lakewake.model.where import Where
from lakewake.serve.refusals import Refused
from lakewake.serve.shared import Shared
from lakewake.show.redact import cleaned, without_secrets

if TYPE_CHECKING:
    from lakewake.api import Index

_audit = logging.getLogger("lakewake.audit")
#: How many rights are kept with their facets and counts.
MOST_VIEWS = 256
#: The most characters of a question in the audit log, and of each other part of it.
LOGGED = 300


@dataclass(frozen=True)
class Caller:
    """Who sent a request.

    Attributes:
        name: `key NAME`, `token SUBJECT` or `anybody`.
        where: the rows that the caller may see; None: all.
        rate: how many requests a second it may send; 0: any number.
        admin: whether it may ask the syncing process for jobs.
    """

    name: str
    where: Where | None = None
    rate: float = 0.0
    admin: bool = False


#: The caller of the request that is being handled; None: nobody was checked.
CALLER: ContextVar[Caller | None] = ContextVar("lakewake-caller", default=None)
#: Of a server that needs no keys.
ANYBODY = Caller("anybody")


class Views(Mapping[str, "Index"]):
    """The indexes as the caller of the running request sees them. This joins rights to questions.

    Args:
        keyed: whether a request without a checked caller sees nothing at all.
    """

    def __init__(self, indexes: Mapping[str, Index], *, keyed: bool) -> None:
        self._indexes, self._keyed = indexes, keyed
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], Index] = OrderedDict()

    @property
    def unlimited(self) -> Mapping[str, Index]:
        """The indexes themselves, for metrics, which only a caller without a filter may read."""
        return self._indexes

    @property
    def caller(self) -> Caller:
        """Who asks.

        Raises:
            Refused: nobody was checked, although keys are needed.
        """
        caller = CALLER.get()
        if caller is None and self._keyed:
            raise Refused(401, "no_key", "a key is needed", "send `Authorization: Bearer KEY`")
        return caller or ANYBODY

    @property
    def are_limited(self) -> bool:
        """Whether the caller may not see every row."""
        return self.caller.where is not None

    def check_whole(self) -> None:
        """Let only callers go on who may see every row: figures of all rows are shown.

        Raises:
            Refused: 403.
        """
        if self.are_limited:
            fact = "this is about all rows, and the caller may see some of them only"
            raise Refused(403, "scope", fact, "use a key without a filter")

    def check_admin(self) -> None:
        """Let only callers with an admin key go on. Without keys nobody has one.

        Raises:
            Refused: 403.
        """
        self.check_whole()
        if not self.caller.admin:
            fact = "only a key with the scope admin may ask for a job"
            raise Refused(
                403, "scope", fact, "add one: `lakewake keys add FILE NAME --scope admin`"
            )

    def __getitem__(self, name: str) -> Index:
        where = self.caller.where
        if name not in self._indexes:
            # The error of the configuration would name its file.
            fact = f"there is no index {name[:80]!r} here"
            raise ConfigError(fact, hint=f"use one of {', '.join(self._indexes)}")
        index = self._indexes[name]
        return index if where is None else self._limited(index, where)

    def __contains__(self, name: object) -> bool:
        return name in self._indexes

    def __iter__(self) -> Iterator[str]:
        return iter(self._indexes)

    def __len__(self) -> int:
        return len(self._indexes)

    def _limited(self, index: Index, where: Where) -> Index:
        from lakewake.api.limited import LimitedIndex

        # By its text: as values, 1 and true are equal, but they are not the same right.
        key = index.name, repr(where)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = LimitedIndex(index, where)
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_VIEWS:
                self._kept.popitem(last=False)
            return self._kept[key]


class Rates:
    """Limits how many requests a second each caller may send.

    A caller that was idle may send those of two seconds at once. All processes of a server count
    in the same memory.
    """

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = monotonic,
        shared: Shared | None = None,
    ) -> None:
        self._rate, self._clock = rate, clock
        self._shared = shared or Shared()

    def take(self, caller: Caller) -> None:
        """Count one request.

        Raises:
            Refused: 429, there were too many.
        """
        rate = caller.rate or self._rate
        if not rate:
            return
        seconds = self._shared.take(caller.name, rate, max(2 * rate, 1.0), self._clock())
        if seconds:
            wait = {"Retry-After": str(max(1, round(seconds)))}
            fact = f"{caller.name} sends more than {rate:g} requests a second"
            raise Refused(429, "rate", fact, "wait, then send fewer requests", wait)


@contextmanager
def audited(views: Views, asked: str, index: str, text: str | None, **more: Any) -> Iterator[None]:
    """Write a line to the audit log about one question, when it was answered or refused."""
    began, outcome = perf_counter(), "answered"
    try:
        yield
    except (LakewakeError, Refused) as error:
        outcome = type(error).__name__ if isinstance(error, LakewakeError) else error.kind
        raise
    except BaseException as error:
        # A tool's error is raised from ours.
        cause = error.__cause__
        outcome = type(cause).__name__ if isinstance(cause, LakewakeError) else "failed"
        raise
    finally:
        caller = views.caller
        line = {
            "caller": caller.name,
            "limited": caller.where is not None,
            "asked": asked,
            "index": index[:80],
            "text": None if text is None else without_secrets(text[:LOGGED]),
            **{name: _logged(value) for name, value in more.items() if value is not None},
            "outcome": outcome,
            "ms": round((perf_counter() - began) * 1000, 1),
        }
        _audit.info("%s", json.dumps(line, ensure_ascii=False, default=str))


def _logged(value: Any) -> Any:
    """What a caller sent, or its beginning: a body may be a million times as long as a line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return cleaned(value) if len(text) <= LOGGED else f"{without_secrets(text[:LOGGED])}…"
