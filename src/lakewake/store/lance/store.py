"""An index in Lance: rows, deletes and frontier in one version of one dataset.

The frontier is a row, rewritten by every commit. Two commits from one version therefore always
touch the same row, Lance lets only one of them through, and the other re-reads the frontier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from lance import LanceDataset

from lakewake.errors import (
    IndexMissing,
    OutcomeUnknown,
    StaleFrontier,
    StoreError,
    StoreUnreachable,
)
from lakewake.model.ann import ANN_MIN_CHUNKS, AUTO
from lakewake.model.chunks import Batch
from lakewake.model.drop import Dropped
from lakewake.model.frontier import Frontier
from lakewake.model.recall import RECALL
from lakewake.model.recipe import Recipe
from lakewake.progress import Reporter, Silent, step
from lakewake.store.deleted import DeletedVectors
from lakewake.store.executors import Executors, nobody
from lakewake.store.hints import dropped
from lakewake.store.lance import upkeep
from lakewake.store.lance.commit import first_rows, try_merge, write_first
from lakewake.store.lance.distributed import DISTRIBUTED_CHUNKS
from lakewake.store.lance.drop import Dropping
from lakewake.store.lance.generations import Generations
from lakewake.store.lance.kinds import RQ, kind_for
from lakewake.store.lance.reader import FOREIGN, LanceReader, brief, is_index, read_checkpoint
from lakewake.store.lance.staging import LanceStaging
from lakewake.store.lance.versions import Versions
from lakewake.store.location import location_at
from lakewake.store.recall import Asking

#: A compaction or an index refresh may interfere a few times, but not forever.
ATTEMPTS = 4


class LanceStore:
    """One index in a folder, local or in S3: `name.json` and `name.g1.lance`.

    Args:
        folder: a path, or `s3://bucket/folder`.
        ann_min_chunks: `maintain` makes an approximate index from this many chunks on.
        lookup_min_chunks: it indexes the columns that chunks are looked up by from this many on.
        words_min_chunks: it keeps the words of the texts in files from this many on.
        recall: the share of the nearest chunks that a vector search has to find; 1 means exact.
        kind: which approximate index it makes; `flat`: none.
        executors: the machines that do upkeep of many chunks; called when there are many.
        distributed_min_chunks: they do it from this many chunks on.
    """

    def __init__(
        self,
        folder: str,
        name: str,
        *,
        ann_min_chunks: int = ANN_MIN_CHUNKS,
        lookup_min_chunks: int = upkeep.LOOKUP_MIN_CHUNKS,
        words_min_chunks: int = upkeep.WORDS_MIN_CHUNKS,
        recall: float = RECALL,
        kind: str = AUTO,
        executors: Callable[[], Executors | None] = nobody,
        distributed_min_chunks: int = DISTRIBUTED_CHUNKS,
        reporter: Reporter | None = None,
    ) -> None:
        self.name = name
        self._generations = Generations(location_at(folder), name)
        asking = Asking(recall, ann_min_chunks, kind)
        self._versions = Versions(name, self._generations, asking)
        deleted = DeletedVectors(self._generations.location, name)
        self._dropping = Dropping(self._generations, self._is_foreign)
        self._kind = kind

        def helpers(chunks: int) -> Executors | None:
            return executors() if chunks >= distributed_min_chunks else None

        self._reporter = reporter or Silent()
        self._upkeep = upkeep.Upkeep(
            asking, deleted, lookup_min_chunks, words_min_chunks, helpers, self._reporter
        )

    def generation(self) -> int:
        return self._generations.replaceable()

    def open(self) -> LanceReader | None:
        return self._versions.newest()

    def as_of(self, instant: str) -> LanceReader:
        return self._versions.as_of(instant)

    def create(self, recipe: Recipe, batch: Batch, then: Frontier, after: int) -> None:
        number = after + 1
        kind_for(self._kind, recipe.model.dimension)
        self._check_free(number)
        schema, source = first_rows(recipe, batch, then)
        location, address = self._generations.location, self._generations.address(number)
        try:
            location.prepare()
            write_first(address, location.options, schema, source, batch.staged)
        except FOREIGN as error:
            source.raise_own()
            self._check_free(number)
            raise self._not_written(error) from error
        self._check_not_dropped(number)
        with self._writing(landed=f"generation {number} is built, but not active yet"):
            self._generations.switch(number)
            active = self._generations.active()
        if active != number:
            self._check_not_dropped(number)
            raise self._stale(f"generation {active} of index '{self.name}' came first")
        self._versions.opened = number

    @contextmanager
    def staging(self, after: int | None = None) -> Iterator[LanceStaging]:
        """Provide a staging for the parts of a batch, until the context ends.

        Raises:
            StaleFrontier: the index was rebuilt.
            StoreError: the store's folder cannot be written to.
        """
        number = self._committable() if after is None else after + 1
        mode = "append" if after is None else "create"
        with ExitStack() as opened:
            with self._writing():
                mark = opened.enter_context(self._generations.mark())
            yield LanceStaging(
                self._generations.address(number), self._generations.location, mark, mode
            )

    def commit(self, batch: Batch, expect: Frontier, then: Frontier) -> None:
        """Apply the whole batch and move the frontier, or do neither.

        Raises:
            StaleFrontier: the frontier is neither `expect` nor `then`, or the index was rebuilt.
            OutcomeUnknown: it may have landed.
        """
        number = self._committable()
        failure: Exception | None = None
        for attempts_left in reversed(range(ATTEMPTS + 1)):
            dataset, current = self._read_newest(number, failure)
            if self._landed(current, expect, then):
                return
            if not attempts_left:
                raise self._not_written(failure) from failure
            failure = try_merge(dataset, batch, current, then)
            if failure is None:
                return

    def maintain(self) -> dict[str, int]:
        number, _ = self._versions.active_and_stamp()
        if not number:
            return {}
        written = self._generations.version_times(number)
        dataset = self._versions.own(number)
        with self._writing():
            switched = self._generations.switch(number)
        steps = self._upkeep.steps(self._versions.word_files(number), written)
        done = {
            "pointer_written": int(switched),
            **{what: self._maintain_step(number, dataset, what, steps[what]) for what in steps},
            "generations_removed": self._generations.retire(before=number),
        }
        return {what: n for what, n in done.items() if n}

    def _committable(self) -> int:
        """The active generation; raise if it is not the one that the caller has seen."""
        number, _ = self._versions.active_and_stamp()
        if not number:
            raise IndexMissing(
                f"there is no index '{self.name}'", hint=f"`lakewake sync {self.name}` builds it"
            )
        # Two generations can have equal frontiers but different recipes: vectors must not mix.
        if self._versions.opened not in (None, number):
            raise self._stale(f"index '{self.name}' was rebuilt as generation {number}")
        if self._kind == RQ:
            # Before anything is written: upkeep could only report it after the commit.
            kind_for(RQ, self._versions.dataset(number).schema.field("_vector").type.list_size)
        return number

    def _read_newest(self, number: int, failure: Exception | None) -> tuple[LanceDataset, str]:
        """The newest version and its frontier, which show how a failed commit ended."""
        try:
            dataset = self._versions.dataset(number)
            return dataset, read_checkpoint(dataset, self.name)
        except StoreError:
            if failure is None:
                raise
            raise OutcomeUnknown(
                f"index '{self.name}' cannot be read after a failed commit: {brief(failure)}",
                landed="the commit may or may not have landed",
                hint=f"run `lakewake sync {self.name}` again to find out",
            ) from failure

    def _landed(self, current: str, expect: Frontier, then: Frontier) -> bool:
        """Whether the frontier is `then` already; False if it is `expect`."""
        if current not in (expect.to_json(), then.to_json()):
            raise self._stale(f"another writer moved the frontier of index '{self.name}' first")
        return current == then.to_json()

    def _check_free(self, number: int) -> None:
        """Raise if this generation is not the next one to build.

        If a builder died before it named its generation, that generation is made active here.
        """
        self._check_not_dropped(number)
        with self._writing():
            if self._generations.whole(number):
                self._versions.own(number)
                self._generations.switch(number)
        active = self._generations.replaceable()
        if active != number - 1:
            raise self._stale(
                f"generation {active} of index '{self.name}' is active, not {number - 1}"
            )

    def _is_foreign(self, number: int) -> bool:
        """Whether a generation's folder holds a dataset that is not ours; not if it is damaged."""
        try:
            return not is_index(self._versions.dataset(number))
        except StoreUnreachable:
            raise
        except StoreError:
            return False

    def _check_not_dropped(self, number: int) -> None:
        """Raise if this generation may never be active, and remove what was written of it."""
        if self._generations.is_dropped(number):
            with suppress(OSError):
                self._dropping.clear(number)
            raise dropped(self.name)

    def was_dropped(self) -> bool:
        # Of files that were lost, no mark is left.
        return self.open() is None and self.generation() > 0

    def drop(self, *, dry_run: bool = False) -> Dropped:
        if dry_run:
            return self._dropping.found()
        with self._writing("some of the index is removed"):
            return self._dropping.drop()

    def _stale(self, fact: str) -> StaleFrontier:
        return StaleFrontier(
            fact,
            hint=f"run `lakewake sync {self.name}` again; the other sync may have done this "
            "work already",
        )

    def _not_written(
        self, error: Exception | None, landed: str = "nothing was written"
    ) -> StoreError:
        location = self._generations.location
        return StoreError(
            f"index '{self.name}' cannot be written in {location.address()}: {brief(error)}",
            landed=landed,
            hint=location.hint,
        )

    @contextmanager
    def _writing(self, landed: str = "nothing was written") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._not_written(error, landed) from error

    def _maintain_step(
        self, number: int, dataset: LanceDataset, what: str, work: Callable[[LanceDataset], int]
    ) -> int:
        """Run one step of upkeep; if a writer interfered, leave it for the next time."""
        try:
            with step(self._reporter, upkeep.NAMES[what]):
                return work(dataset)
        except FOREIGN as error:
            if self._versions.dataset(number).version != dataset.version:
                return 0
            raise self._not_written(error) from error
