"""The frontier point: the only thing that moves an index in Qdrant, and the fence of its writers.

It is in a collection of its own, `wines.frontier`. Each write gives it a new `state`, and Qdrant
applies the write only if the point still has the state that the writer has seen. So of two writers
one finds its own state afterwards, and the other does not.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

import pyarrow as pa
from qdrant_client import models
from qdrant_client.models import Filter

from lakewake.errors import OutcomeUnknown, StoreError, StoreUnreachable
from lakewake.lazy import lazy
from lakewake.model.frontier import Frontier, page_names
from lakewake.model.recipe import Recipe
from lakewake.store.hints import rebuild
from lakewake.store.qdrant.points import Points

FORMAT = 1
#: The frontier point's id, the same in every index.
POINT = str(uuid5(NAMESPACE_URL, "lakewake:frontier"))
#: How many of the last commits are remembered, with their times.
REMEMBERED = 1_000
#: Seconds. A reader that was killed does not keep old points forever.
PINNED_FOR = 24 * 3600.0
#: Seconds. Longer than any commit takes from writing a page to naming it, and any read of a page.
PAGES_FOR = 24 * 3600.0
#: The kind of points that hold a page of the frontier.
PAGE = "page"


@dataclass(frozen=True)
class Decision:
    """A batch that is written whole and will become the next version. Anybody may finish it.

    Attributes:
        id: unique to this decision.
        parts: the names of its parts; points of other parts do not belong to it.
        then: the frontier after it.
    """

    id: str
    parts: tuple[str, ...]
    then: str


@dataclass(frozen=True)
class Commit:
    """A commit that landed: its version, its time and its decision."""

    version: int
    at: float
    decision: str


@dataclass(frozen=True)
class Head:
    """What the frontier point holds.

    Attributes:
        state: unique to this write of the point.
        index: the name of the index, so that two indexes do not share the point by mistake.
        collection: the collection with the points of the active generation.
        version: readers see the points that became valid at this version or before, and end later.
        horizon: points that were valid up to this version or an earlier one may be gone.
        decided: a batch on its way to the next version.
        searching: what the last probe found, as `qdrant.recall.Kept` writes it.
    """

    index: str
    state: str = ""
    generation: int = 0
    collection: str = ""
    version: int = 0
    checkpoint: str = ""
    recipe_text: str = ""
    schema_text: str = ""
    horizon: int = 0
    commits: tuple[Commit, ...] = ()
    decided: Decision | None = None
    searching: str = ""

    @lazy
    def recipe(self) -> Recipe:
        """The recipe that the active generation was built with."""
        return Recipe.from_dict(json.loads(self.recipe_text))

    @lazy
    def schema(self) -> pa.Schema:
        """The index's columns."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema_text)))

    @lazy
    def frontier(self) -> Frontier:
        """What the index has absorbed."""
        return Frontier.from_json(self.checkpoint)

    def knows(self, decision: Decision) -> bool:
        """Whether a decision was accepted: it is being finished, or is finished."""
        return self.decided == decision or any(c.decision == decision.id for c in self.commits)

    def is_dropped(self, after: int) -> bool:
        """Whether the index was dropped since its generation was `after`."""
        return not self.version and self.generation > after

    def reached(self, version: int, checkpoint: str, decision: str) -> Head:
        """The head after a commit."""
        commit = Commit(version, time.time(), decision)
        commits = (*self.commits, commit)[-REMEMBERED:]
        return replace(self, version=version, checkpoint=checkpoint, commits=commits, decided=None)

    def payload(self) -> dict[str, Any]:
        """The point's payload."""
        d = self.decided
        return {
            "format": FORMAT,
            "kind": "frontier",
            "state": self.state,
            "index": self.index,
            "generation": self.generation,
            "collection": self.collection,
            "version": self.version,
            "checkpoint": self.checkpoint,
            "recipe": self.recipe_text,
            "schema": self.schema_text,
            "horizon": self.horizon,
            "commits": [[c.version, c.at, c.decision] for c in self.commits],
            "decided": None if d is None else [d.id, list(d.parts), d.then],
            "searching": self.searching,
        }


def read_head(payload: Mapping[str, Any]) -> Head:
    """The inverse of `Head.payload`.

    Raises:
        ValueError: not a frontier in a format that this Lakewake reads.
    """
    try:
        if payload["format"] != FORMAT:
            raise ValueError(f"format {payload['format']!r}, this Lakewake reads {FORMAT}")
        decided = payload["decided"]
        head = Head(
            index=payload["index"],
            state=payload["state"],
            generation=payload["generation"],
            collection=payload["collection"],
            version=payload["version"],
            checkpoint=payload["checkpoint"],
            recipe_text=payload["recipe"],
            schema_text=payload["schema"],
            horizon=payload["horizon"],
            commits=tuple(Commit(*c) for c in payload["commits"]),
            decided=decided and Decision(decided[0], tuple(decided[1]), decided[2]),
            # Earlier versions do not write it, and it is only advice.
            searching=str(payload.get("searching") or ""),
        )
        if not all(type(n) is int for n in (head.generation, head.version, head.horizon)):
            raise ValueError("a number is not an integer")
        if head.version:
            _ = head.recipe, head.schema, head.frontier
    except (KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise ValueError(f"{type(error).__name__} {error}") from error
    return head


def schema_text(schema: pa.Schema) -> str:
    """A schema as text."""
    return base64.b64encode(schema.serialize()).decode()


@dataclass(frozen=True)
class Fence:
    """The frontier point of one index; can be pickled."""

    points: Points
    name: str
    collection: str = field(kw_only=True)

    def read(self) -> Head | None:
        """The current head; None if there is none yet.

        Raises:
            StoreError: it cannot be reached, is damaged, or belongs to another index.
        """
        payload = self._payload()
        if payload is None:
            return None
        try:
            head = read_head(payload)
        except ValueError as error:
            raise StoreError(
                f"{self.collection} has no readable frontier of index '{self.name}': {error}",
                hint=rebuild(self.name),
            ) from error
        if head.index != self.name:
            raise StoreError(
                f"{self.collection} belongs to index '{head.index}', not to '{self.name}'",
                hint="name another collection in the store's address; each index needs its own",
            )
        return head

    def is_damaged(self) -> bool:
        """Whether the point exists, but this Lakewake cannot read it."""
        try:
            read_head(self._payload() or Head(self.name).payload())
        except ValueError:
            return True
        return False

    def ensure(self, generation: int = 0) -> Head:
        """The current head; if there is no point, create one with this generation number."""
        self.points.create(self.collection, 1, {"state": "keyword", "kind": "keyword"})
        head = Head(self.name, state=uuid4().hex, generation=generation)
        self.points.insert(self.collection, [_point(POINT, head.payload())])
        found = self.read()
        if found is None:
            raise StoreError(
                f"{self.collection} does not keep what is written to it",
                hint="check Qdrant's log and its disk, then sync again",
            )
        return found

    def replace_damaged(self, generation: int) -> Head:
        """Replace a point that cannot be read, for a rebuild."""
        self.points.remove(self.collection, Filter(must=[models.HasIdCondition(has_id=[POINT])]))
        return self.ensure(generation)

    def move(self, seen: Head, to: Head) -> Head | None:
        """Write the point if it still is what was seen; None if another writer was first.

        Raises:
            OutcomeUnknown: the point may have been written, or may still be.
        """
        written = replace(to, state=uuid4().hex)
        unchanged = Filter(must=[models.HasIdCondition(has_id=[POINT]), _is("state", seen.state)])
        failure: StoreError | None = None
        try:
            self.points.overwrite(self.collection, written.payload(), unchanged)
        except StoreError as error:
            failure = error
        try:
            now = self.read()
        except StoreError as error:
            raise self._unknown(failure or error) from error
        if now is not None and now.state == written.state:
            return written
        if now is None and not self.points.exists(self.collection):
            # It was dropped, and a write that arrives late finds no point of that state.
            return None
        if failure is not None and (now is None or now.state == seen.state):
            raise self._unknown(failure) from failure
        return None

    def holds(self, head: Head) -> bool:
        """Whether all points of a version still exist."""
        fields = ["collection", "horizon"]
        now = self.points.payload(self.collection, POINT, fields) or {}
        return now.get("collection") != head.collection or now["horizon"] <= head.version

    def keep_pages(self, pages: Mapping[str, str]) -> None:
        """Write pages of a frontier that no head names yet.

        A page that exists already, from a frontier long gone, may be about to be removed. So its
        time is set first; if the page is gone after that, it is inserted with a new time.
        """
        for name, text in pages.items():
            point = page_point(name)
            mine = Filter(must=[models.HasIdCondition(has_id=[point])])
            self.points.set(self.collection, {"at": time.time()}, mine)
            payload = {"kind": PAGE, "name": name, "text": text, "at": time.time()}
            self.points.insert(self.collection, [_point(point, payload)])

    def read_pages(self, names: Collection[str]) -> dict[str, str]:
        """The texts of pages, by name.

        Raises:
            StoreError: one is missing: nothing names it any more, or it was removed.
        """
        found: dict[str, str] = {}
        for name in names:
            payload = self.points.payload(self.collection, page_point(name), ["text"])
            if payload is None:
                raise StoreError(
                    f"{self.collection} lacks a page of the frontier of index '{self.name}'",
                    hint="open the index again; if the error persists, "
                    f"run `lakewake sync {self.name} --rebuild`",
                )
            found[name] = payload["text"]
        return found

    def drop_pages(self, head: Head) -> int:
        """Remove pages that neither the frontier nor a decision names, once they are old."""
        texts = [head.checkpoint, *([head.decided.then] if head.decided else [])]
        kept = [page_point(name) for text in texts if text for name in page_names(text)]
        old = models.FieldCondition(key="at", range=models.Range(lt=time.time() - PAGES_FOR))
        unnamed = [models.HasIdCondition(has_id=kept)] if kept else None
        where = Filter(must=[_is("kind", PAGE), old], must_not=unnamed)
        found = self.points.count(self.collection, where)
        if found:
            self.points.remove(self.collection, where)
        return found

    def read_note(self, name: str) -> str | None:
        """The note with this name beside the frontier; None if there is none."""
        payload = self.points.payload(self.collection, _note_point(name), ["text"]) or {}
        return payload.get("text")

    def write_note(self, name: str, text: str) -> None:
        """Write or replace a note beside the frontier; notes are not fenced."""
        point, payload = _note_point(name), {"kind": "note", "name": name, "text": text}
        self.points.insert(self.collection, [_point(point, payload)])
        mine = Filter(must=[models.HasIdCondition(has_id=[point])])
        self.points.overwrite(self.collection, payload, mine)

    @contextmanager
    def pin(self, head: Head) -> Iterator[None]:
        """Keep the points of a version during a long read."""
        pin = str(uuid4())
        payload = {"kind": "pin", "of": head.collection, "version": head.version, "at": time.time()}
        with suppress(StoreError):
            # A reader that may not write has no pin, and upkeep does not wait for it.
            self.points.insert(self.collection, [_point(pin, payload)])
        try:
            yield
        finally:
            with suppress(StoreError):
                mine = Filter(must=[models.HasIdCondition(has_id=[pin])])
                self.points.remove(self.collection, mine)

    def pinned(self, head: Head) -> list[int]:
        """The versions of a generation that long reads have pinned."""
        fields, pins = ["of", "version", "at"], Filter(must=[_is("kind", "pin")])
        since = time.time() - PINNED_FOR
        return [
            point.payload["version"]
            for page in self.points.pages(self.collection, pins, fields)
            for point in page
            if point.payload["of"] == head.collection and point.payload["at"] > since
        ]

    def _payload(self) -> dict[str, Any] | None:
        try:
            return self.points.payload(self.collection, POINT)
        except StoreUnreachable:
            raise
        except StoreError:
            if self.points.exists(self.collection):
                raise
            return None

    def _unknown(self, error: StoreError) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"index '{self.name}' may or may not have moved: {error.fact}",
            landed="the commit may or may not have landed",
            hint=f"run `lakewake sync {self.name}` again to find out",
        )


def page_point(name: str) -> str:
    """The id of the point that holds a page."""
    return str(uuid5(NAMESPACE_URL, f"lakewake:page:{name}"))


def _note_point(name: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"lakewake:note:{name}"))


def _point(id: str, payload: dict[str, Any]) -> models.PointStruct:
    return models.PointStruct(id=id, vector=[0.0], payload=payload)


def _is(key: str, value: str) -> models.FieldCondition:
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))
