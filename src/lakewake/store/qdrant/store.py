"""An index in Qdrant, which has no transactions: so points have versions.

A point never changes, except for the versions that it is valid `_from` and `_to`. Readers filter by
the version that the frontier point names.

1. *Write*: the new chunks are inserted as a part that is not valid in any version yet.
2. *Decide*: the frontier point is made to name the parts. Of racing writers one is let through,
   and from here on anybody can finish what it began.
3. *Settle*: the parts become valid from the next version on, and what they replace or delete is
   valid up to it. Readers are still at the version before and see nothing of this.
4. *Move*: the frontier point names the next version and the frontier after it.
5. *Upkeep* later removes what no reader sees any more.

Each step can be repeated, also by another process. A crash before *decide* leaves points that
nobody sees; after a crash that comes later, the next writer finishes the commit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from uuid import uuid4

from lakewake.errors import (
    ConfigError,
    IndexMissing,
    OutcomeUnknown,
    StaleFrontier,
    StoreError,
    StoreUnreachable,
)
from lakewake.model.ann import ANN_MIN_CHUNKS, AUTO
from lakewake.model.chunks import Batch
from lakewake.model.drop import Dropped
from lakewake.model.frontier import Frontier, page_names
from lakewake.model.recall import RECALL
from lakewake.model.recipe import Recipe
from lakewake.store.hints import dropped, rebuild
from lakewake.store.memory import check_columns
from lakewake.store.qdrant import recall as qdrant_recall
from lakewake.store.qdrant import upkeep
from lakewake.store.qdrant.drop import Dropping
from lakewake.store.qdrant.fence import Decision, Fence, Head, schema_text
from lakewake.store.qdrant.filters import (
    among,
    deletions,
    every,
    has_id,
    superseded,
    unborn,
    undecided,
)
from lakewake.store.qdrant.location import QdrantLocation
from lakewake.store.qdrant.points import Points
from lakewake.store.qdrant.reader import QdrantReader
from lakewake.store.qdrant.rows import dimension, indexes
from lakewake.store.qdrant.staging import QdrantStaging, WrittenPart, read_parts, write_part
from lakewake.store.recall import Asking


class QdrantStore:
    """One index in a Qdrant: `wines.frontier`, and a collection for each generation.

    Args:
        collection: how the names of its collections begin.
        sleep: how to wait between two tries of a call.
        recall: the share of the nearest chunks that a vector search has to find; 1 means exact.
        ann_min_chunks: an index with fewer chunks is searched exactly.
        kind: `flat`: every search is exact.
    """

    def __init__(
        self,
        location: QdrantLocation,
        name: str,
        collection: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        recall: float = RECALL,
        ann_min_chunks: int = ANN_MIN_CHUNKS,
        kind: str = AUTO,
    ) -> None:
        self.name = name
        self._asking = Asking(recall, ann_min_chunks, kind)
        self._collection = collection
        self._points = Points(location, sleep)
        self._fence = Fence(self._points, name, collection=f"{collection}.frontier")
        self._opened: str | None = None
        self._cached: QdrantReader | None = None
        # Staged collections that no frontier can name yet.
        self._unnamed: set[str] = set()

    def generation(self) -> int:
        """The number of the active generation; the newest there is if the frontier is damaged."""
        try:
            head = self._fence.read()
        except StoreUnreachable:
            raise
        except StoreError:
            if not self._fence.is_damaged():
                raise
            return self._newest()
        return head.generation if head else 0

    def open(self) -> QdrantReader | None:
        head = self._fence.read()
        if head is None or not head.version:
            self._opened = None
            return None
        if self._cached is None or self._cached.head.state != head.state:
            self._check_there(head)
            self._cached = QdrantReader(self._fence, head, self._asking)
        self._opened = head.collection
        return self._cached

    def as_of(self, instant: str) -> QdrantReader:
        raise ConfigError(
            f"index '{self.name}' is in Qdrant, which keeps no earlier versions",
            hint='search without as_of, or keep the index in the lake: store = "hudi://FOLDER"',
        )

    def create(self, recipe: Recipe, batch: Batch, then: Frontier, after: int) -> None:
        head = self._before(after)
        staged = read_parts(batch.staged)
        collection = staged[0].collection if staged else self._name_of(after + 1)
        built = Head(
            self.name,
            generation=after + 1,
            collection=collection,
            recipe_text=json.dumps(recipe.as_dict(), ensure_ascii=False),
            schema_text=schema_text(batch.schema.remove_metadata()),
        ).reached(1, then.to_json(), "")
        with self._undo_on_error(head, lambda: self._points.drop(collection)):
            self._build(collection, batch, staged)
            self._fence.keep_pages(then.new_pages(frozenset()))
        # From here on the frontier may name it, even through a write that arrives late.
        self._unnamed.discard(collection)
        self._activate(head, built)
        self._opened = collection
        with suppress(StoreError):
            # The alias is for other programs; if this fails, upkeep sets it.
            upkeep.point_alias(self._points, self._collection, built)

    @contextmanager
    def staging(self, after: int | None = None) -> Iterator[QdrantStaging]:
        """Provide a staging for the parts of a batch, until the context ends.

        If a build fails, what was staged for it is removed.

        Raises:
            StaleFrontier: the index was rebuilt.
            StoreError: Qdrant cannot be written to.
        """
        if after is None:
            head = self._committable()
            yield QdrantStaging(self._points, head.collection, head.version)
            return
        collection = self._name_of(after + 1)
        self._unnamed.add(collection)
        try:
            yield QdrantStaging(self._points, collection, 0)
        except BaseException as error:
            self._drop_unnamed(collection, error)
            raise
        finally:
            self._unnamed.discard(collection)

    def commit(self, batch: Batch, expect: Frontier, then: Frontier) -> None:
        """Apply the whole batch and move the frontier, or do neither.

        Raises:
            StaleFrontier: the frontier is neither `expect` nor `then`, or the index was rebuilt.
            OutcomeUnknown: it may have landed.
        """
        head = self._committable()
        if self._landed(head, expect, then):
            return
        check_columns(batch.schema, head.schema)
        staged = read_parts(batch.staged)
        if any((p.collection, p.base) != (head.collection, head.version) for p in staged):
            raise self._stale(f"index '{self.name}' moved on while a batch was written")
        own = uuid4().hex
        with self._undo_on_error(head, lambda: self._forget(head, own)):
            parts = [*staged, self._write(head, own, batch)]
            self._check_whole(head, parts)
            self._fence.keep_pages(then.new_pages(page_names(head.checkpoint)))
        self._decide(head, Decision(own, tuple(p.name for p in parts), then.to_json()), expect)

    def maintain(self) -> dict[str, int]:
        """Finish what a killed writer began, and remove what nobody sees; return what was done."""
        seen = self._fence.read()
        if seen is None or not seen.version:
            return {}
        head, asking = self._finished(seen), self._asking
        there = qdrant_recall.coverage_of(self._points, head, asking)
        done = {
            "commits_finished": int(seen.decided is not None),
            "points_abandoned": upkeep.drop_abandoned(self._points, head),
            "pages_removed": self._fence.drop_pages(head),
            "deleted_sampled": qdrant_recall.sample_deleted(self._fence, head, there, asking),
            "points_removed": upkeep.drop_ended(self._fence, head),
            "generations_removed": upkeep.drop_generations(self._points, self._collection, head),
            "alias_set": upkeep.point_alias(self._points, self._collection, head),
            "questions_probed": qdrant_recall.probe(self._fence, head, there, asking),
        }
        return {what: n for what, n in done.items() if n}

    def was_dropped(self) -> bool:
        # A drop leaves no mark. Collections are not lost by chance: somebody removed them.
        return self.open() is None

    def drop(self, *, dry_run: bool = False) -> Dropped:
        return Dropping(self._fence, self._collection).drop(dry_run=dry_run)

    def _name_of(self, generation: int) -> str:
        return upkeep.generation_name(self._collection, generation, uuid4().hex[:12])

    def _newest(self) -> int:
        """The highest generation that has a collection."""
        numbers = (upkeep.generation_number(self._collection, n) for n in self._points.names())
        return max((n for n in numbers if n is not None), default=0)

    def _check_there(self, head: Head) -> None:
        if not self._points.exists(head.collection):
            raise StoreError(
                f"index '{self.name}' is gone: there is no collection {head.collection}",
                hint=rebuild(self.name),
            )

    def _before(self, after: int) -> Head:
        """The head that a build of the next generation replaces."""
        self._check_own()
        try:
            head = self._fence.ensure()
        except StoreUnreachable:
            raise
        except StoreError:
            if not self._fence.is_damaged():
                raise
            # Only an explicit rebuild gets here.
            head = self._fence.replace_damaged(self._newest())
        if head.generation != after:
            raise self._stale(f"generation {head.generation} of index '{self.name}' is active")
        return head

    def _check_own(self) -> None:
        """Raise if a collection of somebody else has the name."""
        if self._collection in self._points.names():
            raise StoreError(
                f"collection '{self._collection}' exists already and is not an index of Lakewake",
                hint="name another collection in the store's address",
            )

    def _build(self, collection: str, batch: Batch, staged: list[WrittenPart]) -> None:
        """Write a whole generation, valid from version 1 on."""
        length = dimension(batch.schema)
        self._points.create(collection, length, indexes(batch.schema))
        with batch.rows() as rows:
            parts = [*staged, write_part(self._points, collection, 0, rows)]
        built = Head(self.name, collection=collection)
        self._check_whole(built, parts)
        self._settle(built, tuple(p.name for p in parts))

    def _activate(self, head: Head, built: Head) -> None:
        """Make a generation the active one, if its predecessor is still active."""
        after = head.generation
        while not self._fence.move(head, built):
            found = self._fence.read()
            # A drop changes the frontier point first, and then removes the collections.
            gone = found is None or found.is_dropped(after)
            if found is None or gone or not self._points.exists(built.collection):
                with suppress(StoreError):
                    self._points.drop(built.collection)
                raise dropped(self.name)
            head = found
            if head.collection == built.collection:
                return
            if head.generation != after:
                with suppress(StoreError):
                    self._points.drop(built.collection)
                raise self._stale(f"generation {head.generation} of '{self.name}' came first")

    def _read(self) -> Head:
        head = self._fence.read()
        if head is None:
            raise StoreError(
                f"index '{self.name}' is gone: {self._fence.collection} is not there",
                hint=f"run `lakewake sync {self.name} --rebuild`",
            )
        return head

    def _committable(self) -> Head:
        """The current head, with any decided commit finished; raise if the index was rebuilt."""
        head = self._fence.read()
        if head is None or not head.version:
            raise IndexMissing(
                f"there is no index '{self.name}'", hint=f"`lakewake sync {self.name}` builds it"
            )
        # Two generations can have equal frontiers but different recipes: vectors must not mix.
        if self._opened not in (None, head.collection):
            raise self._stale(f"index '{self.name}' was rebuilt as generation {head.generation}")
        self._check_there(head)
        return self._finished(head)

    def _landed(self, head: Head, expect: Frontier, then: Frontier) -> bool:
        """Whether the frontier is `then` already; False if it is `expect`."""
        if head.checkpoint not in (expect.to_json(), then.to_json()):
            raise self._stale(f"another writer moved the frontier of index '{self.name}' first")
        return head.checkpoint == then.to_json()

    def _write(self, head: Head, name: str, batch: Batch) -> WrittenPart:
        length = dimension(head.schema)
        with batch.rows() as rows:
            return write_part(
                self._points,
                head.collection,
                head.version,
                rows,
                name=name,
                deletes=batch.deletes,
                length=length,
            )

    def _check_whole(self, head: Head, parts: list[WrittenPart]) -> None:
        """Raise if any point of the parts is missing."""
        written = sum(p.points for p in parts)
        names = [p.name for p in parts]
        found = self._points.count(head.collection, every(among("_part", names)))
        if found != written:
            raise StoreError(
                f"Qdrant accepted {written} points of index '{self.name}', but has {found}",
                hint="sync again; if the error persists, look at the server's log",
            )

    def _decide(self, head: Head, decision: Decision, expect: Frontier) -> None:
        """Steps 2 to 4: once the first succeeds, the batch is certain to land."""
        base = head
        while not (moved := self._fence.move(head, replace(head, decided=decision))):
            head = self._finished(self._read())
            if head.knows(decision):
                return
            if (head.collection, head.checkpoint) != (base.collection, expect.to_json()):
                # The point will never again have the state that our decision waits for.
                self._forget(base, decision.id)
                self._check_landed(head, base, decision)
                return
        try:
            self._finished(moved)
        except StoreError as error:
            raise OutcomeUnknown(
                f"index '{self.name}' was interrupted while it applied a batch: {error.fact}",
                landed="the batch is written whole, and lands with the next sync",
                hint=f"run `lakewake sync {self.name}` again to finish it",
            ) from error

    def _check_landed(self, head: Head, base: Head, decision: Decision) -> None:
        """Raise unless an earlier try landed the batch: no other writer's frontier equals ours."""
        if head.collection != base.collection:
            raise self._stale(f"index '{self.name}' was rebuilt meanwhile")
        if head.checkpoint != decision.then:
            raise self._stale(f"another writer moved the frontier of index '{self.name}' first")

    def _finished(self, head: Head) -> Head:
        """Do steps 3 and 4 for any decided commit; return the head after that."""
        while decision := head.decided:
            self._settle(head, decision.parts)
            after = head.reached(head.version + 1, decision.then, decision.id)
            head = self._fence.move(head, after) or self._read()
        return head

    def _settle(self, head: Head, parts: tuple[str, ...]) -> None:
        """Make parts valid from the next version on, and end what they replace or delete."""
        collection, after = head.collection, head.version + 1
        if head.version:
            for page in self._points.pages(collection, deletions(parts), ["_gone"]):
                for point in page:
                    self._end(head, point.payload["_gone"])
        for page in self._points.pages(collection, unborn(parts), ["_id"]):
            if page and head.version:
                # End the former chunks first: a point that is settled is not looked at again.
                self._end(head, [point.payload["_id"] for point in page])
            if page:
                born = every(unborn(parts), has_id([point.id for point in page]))
                self._points.set(collection, {"_from": after}, born)

    def _end(self, head: Head, ids: list[str]) -> None:
        ends = {"_to": head.version + 1}
        self._points.set(head.collection, ends, superseded(ids, head.version))

    def _forget(self, head: Head, part: str) -> None:
        """Remove a part that will never be decided on; if this fails, upkeep does it."""
        with suppress(StoreError):
            self._points.remove(head.collection, undecided([part]))

    def _drop_unnamed(self, collection: str, error: BaseException) -> None:
        """Remove a collection of a build that failed before the frontier could name it."""
        if not isinstance(error, StoreUnreachable) and collection in self._unnamed:
            with suppress(StoreError):
                self._points.drop(collection)

    @contextmanager
    def _undo_on_error(self, seen: Head, undo: Callable[[], None]) -> Iterator[None]:
        """Undo what was written for a batch if it fails before it is decided on."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, StoreUnreachable):
                with suppress(StoreError):
                    undo()
                self._check_unmoved(seen, error)
            raise

    def _check_unmoved(self, seen: Head, error: BaseException) -> None:
        """Raise `StaleFrontier` if another writer was first: upkeep may have removed our points."""
        if not isinstance(error, StoreError):
            return
        try:
            now = self._fence.read()
        except StoreError:
            return
        if now is None or now.is_dropped(seen.generation):
            raise dropped(self.name) from error
        if (now.collection, now.version) != (seen.collection, seen.version):
            raise self._stale(f"index '{self.name}' moved on while a batch was written") from error

    def _stale(self, fact: str) -> StaleFrontier:
        return StaleFrontier(
            fact,
            hint=f"run `lakewake sync {self.name}` again; the other sync may have done this "
            "work already",
        )
