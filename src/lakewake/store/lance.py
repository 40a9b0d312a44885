"""An index in Lance: rows, deletes and frontier in one version of one dataset.

The frontier is a row, rewritten by every commit. Two commits from one version therefore always
touch the same row, Lance lets only one of them through, and the other re-reads the frontier.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments

from lakewake.errors import (
    IndexMissing,
    OutcomeUnknown,
    StaleFrontier,
    StoreError,
)
from lakewake.model.chunks import CHECKPOINT_ID, Batch
from lakewake.model.frontier import Frontier
from lakewake.model.recipe import Recipe
from lakewake.store.generations import Generations
from lakewake.store.lance_reader import (
    FOREIGN,
    FORMAT,
    LanceReader,
    brief,
    in_list,
    read_checkpoint,
    rebuild,
    unpin_forgotten,
    vector_index,
    way_out,
)
from lakewake.store.lance_staging import LanceStaging, Source, read_fragments
from lakewake.store.memory import check_columns
from lakewake.store.place import place_at

#: Fewer chunks than this are searched exactly in a fraction of a second.
ANN_MIN_CHUNKS = 100_000
#: A compaction or an index refresh may get in between a few times, not for ever.
ATTEMPTS = 4
#: Each commit adds a small fragment, and each fragment costs every search.
MAX_SMALL_FRAGMENTS = 50
#: Larger fragments are left alone, or every compaction would rewrite the index.
SMALL_FRAGMENT = 16_384
MAX_UNINDEXED = 5_000
KEEP_VERSIONS = 10
#: Longer than any search; what is read for longer is pinned.
KEEP_FOR = timedelta(minutes=10)
#: Dropping versions means reading all their manifests: not for the sake of a few.
MAX_OLD_VERSIONS = 50


class LanceStore:
    """One index in a folder, here or in S3: `name.json` and `name.g1.lance`.

    Args:
        folder: a path, or `s3://bucket/folder`.
        ann_min_chunks: from how many chunks on `maintain` makes an approximate index.
    """

    def __init__(
        self,
        folder: str,
        name: str,
        *,
        ann_min_chunks: int = ANN_MIN_CHUNKS,
    ) -> None:
        self.name = name
        self._places = Generations(place_at(folder), name)
        self._options = self._places.place.options
        self._ann_min_chunks = ann_min_chunks
        self._opened: int | None = None
        self._kept: tuple[object, LanceReader] | None = None

    def generation(self) -> int:
        """The number of the active generation without reading it, 0 when there is none."""
        return self._places.replaceable()

    def open(self) -> LanceReader | None:
        """The newest version of the active generation, or None when there is no index yet.

        Raises:
            StoreError: something else lies there, or it cannot be read.
        """
        number = self._active()
        self._opened = number
        if not number:
            return None
        # Each version adds a file: as long as none came, the opened one is the newest, and what
        # Lance has read of its indexes is still in memory.
        stands = number, sorted(self._places.version_times(number))
        if self._kept is None or self._kept[0] != stands:
            self._kept = stands, LanceReader(self._dataset(number), number, self.name)
        return self._kept[1]

    def create(self, recipe: Recipe, batch: Batch, then: Frontier, after: int) -> None:
        """Write generation `after + 1` whole, then make it the active one.

        Raises:
            StaleFrontier: another builder made that generation.
        """
        number = after + 1
        self._check_free(number)
        schema = batch.schema.with_metadata(_metadata(recipe))
        source = _source(batch, schema, then)
        try:
            self._write_whole(number, schema, source, batch.staged)
        except FOREIGN as error:
            source.raise_own()
            self._check_free(number)
            raise self._not_written(error) from error
        with self._writing(landed=f"generation {number} is built, but not named in its file yet"):
            self._places.switch(number)
            active = self._places.active()
        if active != number:
            raise self._stale(f"generation {active} of index '{self.name}' came first")
        self._opened = number

    @contextmanager
    def staging(self, after: int | None = None) -> Iterator[LanceStaging]:
        """A place for the parts of a batch, until the context ends.

        Raises:
            StaleFrontier: the index was rebuilt.
            StoreError: the store's folder cannot be written.
        """
        number = self._committable() if after is None else after + 1
        mode = "append" if after is None else "create"
        with ExitStack() as opened:
            with self._writing():
                mark = opened.enter_context(self._places.mark())
            yield LanceStaging(self._places.address(number), self._places.place, mark, mode)

    def commit(self, batch: Batch, expect: Frontier, then: Frontier) -> None:
        """Apply the whole batch and move the frontier, or do neither.

        Raises:
            StaleFrontier: the frontier is neither `expect` nor `then`, or the index was rebuilt.
            OutcomeUnknown: it may have landed.
        """
        number = self._committable()
        failure: Exception | None = None
        for attempts_left in reversed(range(ATTEMPTS + 1)):
            dataset, stands = self._look(number, failure)
            if self._landed(stands, expect, then):
                return
            if not attempts_left:
                raise self._not_written(failure) from failure
            failure = _try_merge(dataset, batch, then)
            if failure is None:
                return

    def maintain(self) -> dict[str, int]:
        """Compact, refresh the index, drop old versions and generations; says what it did."""
        number = self._active()
        if not number:
            return {}
        dataset = self._own(number)
        with self._writing():
            named = self._places.switch(number)
        done = {
            "pointer_written": int(named),
            "fragments_compacted": self._tend(number, dataset, _compact),
            "chunks_indexed": self._tend(number, dataset, self._index),
            "versions_removed": self._tend(number, dataset, partial(self._drop_versions, number)),
            "generations_removed": self._places.retire(before=number),
        }
        return {what: n for what, n in done.items() if n}

    def _own(self, number: int) -> LanceDataset:
        """A generation's newest version, where it is an index of ours."""
        dataset = self._dataset(number)
        LanceReader(dataset, number, self.name)
        return dataset

    def _active(self) -> int:
        self._places.check()
        number = self._places.active()
        if not number and (lost := self._places.named()):
            raise StoreError(
                f"index '{self.name}' is gone: {self._places.address(lost)} is not there",
                hint=rebuild(self.name),
            )
        return number

    def _committable(self) -> int:
        """The active generation, where it is still the one that the caller has seen."""
        number = self._active()
        if not number:
            raise IndexMissing(
                f"there is no index '{self.name}'", hint=f"`lakewake sync {self.name}` builds it"
            )
        # Frontiers of two generations can be equal while recipes differ: vectors must not mix.
        if self._opened not in (None, number):
            raise self._stale(f"index '{self.name}' was rebuilt as generation {number}")
        return number

    def _dataset(self, number: int) -> LanceDataset:
        place = self._places.address(number)
        try:
            return lance.dataset(place, storage_options=self._options)
        except FOREIGN as error:
            raise StoreError(
                f"index '{self.name}' cannot be opened at {place}: {brief(error)}",
                hint=way_out(self.name, place),
            ) from error

    def _look(self, number: int, failure: Exception | None) -> tuple[LanceDataset, str]:
        """The newest version and its frontier. After a failed commit these tell the outcome."""
        try:
            dataset = self._dataset(number)
            return dataset, read_checkpoint(dataset, self.name)
        except StoreError:
            if failure is None:
                raise
            raise OutcomeUnknown(
                f"index '{self.name}' cannot be read after a failed commit: {brief(failure)}",
                landed="the commit may or may not have landed",
                hint=f"`lakewake sync {self.name}` again finds out",
            ) from failure

    def _landed(self, stands: str, expect: Frontier, then: Frontier) -> bool:
        """Whether the index stands at `then` already; False when at `expect`."""
        if stands not in (expect.to_json(), then.to_json()):
            raise self._stale(f"another writer moved the frontier of index '{self.name}' first")
        return stands == then.to_json()

    def _check_free(self, number: int) -> None:
        """Refuse to build a generation that is not the next one.

        A builder that died before naming its generation is finished here: the index stands.
        """
        with self._writing():
            if self._places.whole(number):
                self._own(number)
                self._places.switch(number)
        active = self._places.replaceable()
        if active != number - 1:
            raise self._stale(
                f"generation {active} of index '{self.name}' is active, not {number - 1}"
            )

    def _write_whole(
        self, number: int, schema: pa.Schema, source: Source, staged: Sequence[bytes]
    ) -> None:
        place = self._places.address(number)
        self._places.place.prepare()
        fragments = write_fragments(
            source.reader(), place, schema=schema, mode="create", storage_options=self._options
        )
        # Without retries and from version 0 Lance writes the first version or nothing;
        # `write_dataset(mode="create")` lets racing builders overwrite one another.
        LanceDataset.commit(
            place,
            LanceOperation.Overwrite(schema, [*read_fragments(staged), *fragments]),
            read_version=0,
            max_retries=0,
            storage_options=self._options,
        )

    def _stale(self, fact: str) -> StaleFrontier:
        return StaleFrontier(fact, hint=f"`lakewake sync {self.name}` again: it may be done")

    def _not_written(
        self, error: Exception | None, landed: str = "nothing was written"
    ) -> StoreError:
        place = self._places.place
        return StoreError(
            f"index '{self.name}' cannot be written in {place.address()}: {brief(error)}",
            landed=landed,
            hint=place.hint,
        )

    @contextmanager
    def _writing(self, landed: str = "nothing was written") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._not_written(error, landed) from error

    def _tend(self, number: int, dataset: LanceDataset, step: Callable[[LanceDataset], int]) -> int:
        """One step of upkeep; when a writer came in between, it is left for the next time."""
        try:
            return step(dataset)
        except FOREIGN as error:
            if self._dataset(number).version != dataset.version:
                return 0
            raise self._not_written(error) from error

    def _index(self, dataset: LanceDataset) -> int:
        chunks = dataset.count_rows() - 1
        name = vector_index(dataset)
        if name is None:
            return _make_index(dataset, chunks) if chunks >= self._ann_min_chunks else 0
        waiting = int(dataset.stats.index_stats(name)["num_unindexed_rows"])
        if waiting <= MAX_UNINDEXED:
            return 0
        dataset.optimize.optimize_indices()
        return waiting

    def _drop_versions(self, number: int, dataset: LanceDataset) -> int:
        written = sorted(self._places.version_times(number))
        before = time.time() - KEEP_FOR.total_seconds()
        if sum(t < before for t in written[:-KEEP_VERSIONS]) < MAX_OLD_VERSIONS:
            return 0
        unpin_forgotten(dataset)
        stats = dataset.cleanup_old_versions(
            KEEP_FOR, KEEP_VERSIONS, error_if_tagged_old_versions=False
        )
        return int(stats.old_versions)


def _source(batch: Batch, schema: pa.Schema, then: Frontier) -> Source:
    """The rows of one commit, the checkpoint row last."""
    check_columns(batch.schema, schema)
    return Source(schema, _rows(batch, schema, then))


def _rows(batch: Batch, schema: pa.Schema, then: Frontier) -> Iterator[pa.RecordBatch]:
    with batch.rows() as rows:
        for some in rows:
            yield pa.RecordBatch.from_arrays(some.columns, schema=schema)
    row = {"_id": CHECKPOINT_ID, "_checkpoint": then.to_json()}
    yield pa.RecordBatch.from_pylist([row], schema=schema)


def _metadata(recipe: Recipe) -> dict[str, bytes]:
    return {
        "lakewake.format": FORMAT,
        "lakewake.recipe": json.dumps(recipe.as_dict(), ensure_ascii=False).encode(),
        "lakewake.fingerprint": recipe.fingerprint.encode(),
    }


def _try_merge(dataset: LanceDataset, batch: Batch, then: Frontier) -> Exception | None:
    """Commit the batch to this version, or say why Lance did not report success."""
    source = _source(batch, dataset.schema, then)
    try:
        _merge(dataset, source, batch)
    except FOREIGN as error:
        source.raise_own()
        return error
    return None


def _merge(dataset: LanceDataset, source: Source, batch: Batch) -> None:
    merge = dataset.merge_insert("_id").when_matched_update_all().when_not_matched_insert_all()
    if gone := (*batch.deletes, *batch.replaced):
        merge = merge.when_not_matched_by_source_delete(in_list("_id", gone))
    transaction, _ = merge.execute_uncommitted(source.reader())
    # The same commit takes what others have written: its former versions go by the merge.
    transaction.operation.new_fragments += read_fragments(batch.staged)
    LanceDataset.commit(dataset, transaction)


def _compact(dataset: LanceDataset) -> int:
    sizes = [f.metadata.num_rows for f in dataset.get_fragments()]
    if sum(n < SMALL_FRAGMENT for n in sizes) <= MAX_SMALL_FRAGMENTS:
        return 0
    done = dataset.optimize.compact_files(target_rows_per_fragment=SMALL_FRAGMENT)
    return int(done.fragments_removed)


def _make_index(dataset: LanceDataset, chunks: int) -> int:
    vectors = dataset.schema.field("_vector").type
    recipe = Recipe.from_dict(json.loads(dataset.schema.metadata[b"lakewake.recipe"]))
    dataset.create_index(
        "_vector",
        # RQ builds faster and finds as well, but only in dimensions that are a multiple of 8.
        "IVF_HNSW_SQ" if vectors.list_size % 8 else "IVF_RQ",
        metric=recipe.metric,
        num_partitions=min(max(chunks // 512, 1), 1024),
    )
    return chunks
