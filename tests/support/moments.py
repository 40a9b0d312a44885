"""A sync as a sequence of moments, before and after each effect, at which anything may happen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import TextRefused
from lakewake.source.memory import History
from lakewake.sync import IndexParts
from support.sampling import HASHING

Moment = Callable[[], None]


class PowerCut(Exception):
    """Raised to end the process at a moment."""


def cut_off() -> None:
    raise PowerCut


def never() -> None:
    pass


class Choosy(HashingEmbedder):
    """Refuse texts that contain a word, as providers do: with the other vectors, or without."""

    def __init__(self) -> None:
        super().__init__(HASHING)
        self.word = ""
        self.gives_the_others = True

    def embed(self, texts):
        reasons = {n: "too odd" for n, t in enumerate(texts) if self.word and self.word in t}
        if reasons and not self.gives_the_others:
            raise TextRefused("some are refused", reasons)
        vectors = super().embed(texts)
        if reasons:
            raise TextRefused("some are refused", reasons, vectors)
        return vectors


class Watched:
    """A wrapper whose named methods have a moment before and after them."""

    def __init__(self, inner: Any, methods: Mapping[str, Callable[..., Any] | None]) -> None:
        self.inner = inner
        self.moment: Moment = never
        for name, method in methods.items():
            setattr(self, name, self._watched(method or getattr(inner, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self.moment()
            out = method(*args, **named)
            self.moment()
            return out

        return call


class WatchedTable(Watched):
    """A table whose reads call `look` through its wrapper.

    So reads have moments inside, around the second look, which pins what they read.
    """

    def __getattr__(self, name: str) -> Any:
        own = getattr(type(self.inner), name, None)
        return own.__get__(self) if hasattr(own, "__get__") else getattr(self.inner, name)

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        if getattr(method, "__name__", "") in READS:
            method = getattr(type(self.inner), method.__name__).__get__(self)
        return super()._watched(method)


READS = ("snapshot", "first", "changes", "moved", "rows", "reconcile", "compare")
EFFECTS = {
    "table": ("look", *READS),
    "embedder": ("embed",),
    "vector_cache": ("put",),
    "store": ("create", "commit", "maintain"),
}
KINDS = {"table": WatchedTable, "embedder": Watched, "vector_cache": Watched, "store": Watched}


class Noted:
    """Record for each written frontier the state of the table that its writer had read."""

    def __init__(self, parts: IndexParts, states: dict[str, History]) -> None:
        table: Any = parts.table
        self._table, self._store, self._states = table, parts.store, states
        self._seen = History()

    def look(self, frontier):
        self._seen = self._table.history
        return self._table.look(frontier)

    def create(self, recipe, batch, then, after):
        self._states[then.to_json()] = self._seen
        self._store.create(recipe, batch, then, after)

    def commit(self, batch, expect, then):
        self._states[then.to_json()] = self._seen
        self._store.commit(batch, expect, then)


def watched(parts: IndexParts, states: dict[str, History] | None = None) -> Any:
    """The same parts, with a moment before and after each effect and each look at the table.

    Typed as `Any`: the wrappers offer more than the protocols promise.
    For a memory table, `states` records its state at each frontier.
    """
    noted = None if states is None else Noted(parts, states)
    doubles = {
        part: KINDS[part](getattr(parts, part), {n: getattr(noted, n, None) for n in names})
        for part, names in EFFECTS.items()
    }
    return replace(parts, **doubles)


def at_each_moment(parts: IndexParts, moment: Moment) -> None:
    """Call `moment` at each moment of these parts from now on."""
    for part in EFFECTS:
        getattr(parts, part).moment = moment


def at_moment(parts: IndexParts, number: int, then: Moment) -> None:
    """Call `then` once, at the given moment counted from now."""
    left = number

    def moment() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            at_each_moment(parts, never)
            then()

    at_each_moment(parts, moment)


def known_hashes(parts: IndexParts) -> set[str]:
    """Hashes of the texts whose vectors the index or the vector cache holds."""
    index = parts.store.open()
    kept: Any = parts.vector_cache
    held = (h for b in index.scan(["_hash"]) for h in b["_hash"].to_pylist()) if index else ()
    return {*held, *kept._vectors}


class Turns:
    """Work in its own thread that advances one moment per turn."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.done = False
        self.error: BaseException | None = None
        self._thread.start()

    def moment(self) -> None:
        """Called by the work: end this turn and wait for the next."""
        self._back.release()
        self._go.acquire()

    def take(self) -> None:
        """Run one turn, up to the next moment or the end."""
        if not self.done:
            self._go.release()
            self._back.acquire()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._work()
        except BaseException as error:
            self.error = error
        finally:
            self.done = True
            self._back.release()


def take_turns(schedule: Iterable[bool], first: Turns, second: Turns) -> None:
    """Run two works in turns, as the schedule says."""
    for is_second in schedule:
        (second if is_second else first).take()


def finish(*works: Turns) -> None:
    """Run all works to their ends, in turns.

    Raises:
        BaseException: the error of one of them.
    """
    while not all(work.done for work in works):
        for work in works:
            work.take()
    for work in works:
        if work.error is not None:
            raise work.error
