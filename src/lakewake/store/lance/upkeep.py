"""Keeps a Lance index fast to read and small on disk. Each step returns how much it did."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
from lance import LanceDataset

from lakewake.model.ann import FLAT
from lakewake.model.recall import Decision
from lakewake.model.recipe import Recipe
from lakewake.progress import SILENT, Reporter, step
from lakewake.store import recall
from lakewake.store.deleted import KEPT, DeletedVectors
from lakewake.store.executors import Helpers, nobody
from lakewake.store.lance import distributed
from lakewake.store.lance.deleted import deleted_vectors
from lakewake.store.lance.kinds import kind_for
from lakewake.store.lance.reader import FOREIGN, PIN
from lakewake.store.lance.recall import (
    CHANGED,
    KEY,
    Coverage,
    coverage_of,
    decide,
    make_probe,
    stored_vectors,
)
from lakewake.store.lance.training import training
from lakewake.store.lance.words import WordFiles, slices_of, write_words
from lakewake.store.recall import Asking, is_due, now

#: The approximate index is dropped below this share of `Asking.least`. A little below `least` it is
#: kept but not used, so that an index of about that size is not trained again and again.
KEEP_SHARE = 0.8
#: About how many chunks a partition of the approximate index has, and the most partitions.
PARTITION, MAX_PARTITIONS = 512, 1024
#: With fewer chunks, lookups scan all of them.
LOOKUP_MIN_CHUNKS = 30_000
#: The first search of a process counts the words of up to this many texts itself, in hundredths of
#: a second; or of this share of the texts, if the others are counted already.
WORDS_MIN_CHUNKS, WORDS_SHARE = 2_000, 256
#: What a person sees of each step while it runs, by the name of what it counts.
NAMES = {
    "deleted_sampled": "sample deleted vectors",
    "fragments_compacted": "join small files",
    "lookups_made": "index the ids",
    "texts_indexed": "count words",
    "chunks_indexed": "index the vectors",
    "approximate_dropped": "drop the approximate index",
    "questions_probed": "measure the recall",
    "versions_removed": "remove old versions",
}
#: The columns that chunks are looked up by. Indexes make a commit cost as much as it changes.
LOOKUPS = ("_id", "_key", "_hash")
#: Each commit adds a small fragment, and each fragment costs every search a tenth of a millisecond;
#: joining this many takes 20 ms.
MAX_SMALL_FRAGMENTS = 8
#: Larger fragments are left alone, or every compaction would rewrite the index.
SMALL_FRAGMENT = 16_384
#: Every search scans the chunks that are not in the indexes yet: a thousand beside 130,000 make it
#: a quarter slower. Adding them costs time in proportion to the index: 1 s for that one.
MIN_WAITING, WAITING_SHARE = 500, 256
KEEP_VERSIONS = 10
#: A pin of a reader that was killed is removed after this time.
PINNED_FOR = timedelta(days=1)
#: Longer than any search; longer reads pin their version.
KEEP_FOR = timedelta(minutes=10)
#: Dropping versions means reading all their manifests, which a few do not justify.
MAX_OLD_VERSIONS = 50


@dataclass(frozen=True)
class Upkeep:
    """The steps of upkeep of one index, in their order.

    Attributes:
        deleted: where the sample of deleted vectors is kept.
        lookup_min_chunks: lookups are made from this many chunks on.
        words_min_chunks: words are kept in files from this many chunks on.
        helpers: the executors that do the work on many chunks.
        reporter: shows how far a step is.
    """

    asking: Asking
    deleted: DeletedVectors
    lookup_min_chunks: int
    words_min_chunks: int
    helpers: Helpers
    reporter: Reporter

    def steps(
        self, words: WordFiles, written: Sequence[float]
    ) -> dict[str, Callable[[LanceDataset], int]]:
        """Each step, by the name of what it counts; `written` is when each version was made."""
        asking, deleted, helpers = self.asking, self.deleted, self.helpers
        lookups, texts, shown = self.lookup_min_chunks, self.words_min_chunks, self.reporter
        words_step = partial(count_words, files=words, least=texts, helpers=helpers)
        return {
            "deleted_sampled": partial(sample_deleted, asking=asking, sample=deleted),
            "fragments_compacted": compact,
            "lookups_made": partial(make_lookups, least=lookups, helpers=helpers),
            "texts_indexed": partial(words_step, reporter=shown),
            "chunks_indexed": partial(index_chunks, asking=asking, helpers=helpers, reporter=shown),
            "approximate_dropped": partial(drop_approximate, asking=asking),
            "questions_probed": partial(
                probe, asking=asking, sample=deleted, helpers=helpers, reporter=shown
            ),
            "versions_removed": partial(drop_versions, written=written),
        }


def compact(dataset: LanceDataset) -> int:
    """Join small fragments."""
    sizes = [f.metadata.num_rows for f in dataset.get_fragments()]
    if sum(n < SMALL_FRAGMENT for n in sizes) <= MAX_SMALL_FRAGMENTS:
        return 0
    done = dataset.optimize.compact_files(target_rows_per_fragment=SMALL_FRAGMENT)
    return int(done.fragments_removed)


def make_lookups(dataset: LanceDataset, *, least: int, helpers: Helpers = nobody) -> int:
    """Index the columns that chunks are looked up by, if there are more than `least` chunks."""
    rows = dataset.count_rows()
    if rows <= least:
        return 0
    there = {column for i in dataset.describe_indices() for column in i.field_names}
    wanted = [column for column in LOOKUPS if column not in there]
    if wanted and (executors := helpers(rows)):
        distributed.make_lookups(dataset, wanted, executors)
        return len(wanted)
    for column in wanted:
        dataset.create_scalar_index(column, "BTREE")
    return len(wanted)


def count_words(
    dataset: LanceDataset,
    *,
    files: WordFiles,
    least: int,
    helpers: Helpers = nobody,
    reporter: Reporter = SILENT,
) -> int:
    """Write the words of the texts to files, once more than a few are missing there."""
    if not built_by(dataset).fields:
        return 0
    _drop_former_index(dataset)
    slices = [s for f in dataset.get_fragments() for s in slices_of(f)]
    there = files.names()
    missing = [s for s in slices if s.name not in there]
    rows, lacking = sum(s.rows for s in slices), sum(s.rows for s in missing)
    if lacking <= max(least, rows // WORDS_SHARE):
        return 0
    if executors := helpers(lacking):
        names = [s.name for s in missing]
        texts = distributed.count_words(dataset, files, names, executors)
    else:
        with step(reporter, "read texts", lacking) as stage:
            texts = write_words(dataset, files, missing, stage)
    files.discard(there - {s.name for s in slices})
    return min(texts, int(dataset.count_rows()) - 1)


def _drop_former_index(dataset: LanceDataset) -> None:
    """Remove Lance's own word index, which earlier versions made and nothing uses."""
    for index in dataset.describe_indices():
        if index.field_names == ["_text"]:
            dataset.drop_index(index.name)


def built_by(dataset: LanceDataset) -> Recipe:
    """The recipe that the index was built with."""
    return Recipe.from_dict(json.loads(dataset.schema.metadata[b"lakewake.recipe"]))


def drop_approximate(dataset: LanceDataset, *, asking: Asking) -> int:
    """Remove the approximate index if it is not used."""
    there = coverage_of(dataset)
    if not there.partitions or (_wants(asking) and there.chunks >= asking.least * KEEP_SHARE):
        return 0
    for index in dataset.describe_indices():
        if index.field_names == ["_vector"]:
            dataset.drop_index(index.name)
    _keep(dataset, None, None)
    return 1


def index_chunks(
    dataset: LanceDataset,
    *,
    asking: Asking,
    helpers: Helpers = nobody,
    reporter: Reporter = SILENT,
) -> int:
    """Make the approximate index, if there are enough chunks, and add new chunks to all indexes."""
    there = coverage_of(dataset)
    chunks = there.chunks
    if _wants(asking) and chunks >= asking.least and _unfit(dataset, there, asking):
        return _make_vector_index(dataset, chunks, asking, helpers, reporter)
    indexed = [i.num_rows_indexed for i in dataset.describe_indices()]
    waiting: int = chunks - min(indexed, default=chunks)
    if waiting <= max(MIN_WAITING, chunks // WAITING_SHARE):
        return 0
    # Keep the partitions: left to itself, Lance would merge them into a few large ones, and a
    # search of some partitions would be a search of everything.
    if executors := helpers(chunks):
        distributed.add_to_indexes(dataset, executors)
    else:
        dataset.optimize.optimize_indices(num_indices_to_merge=1)
    if there.decision:
        added = coverage_of(dataset).covered - there.covered
        last = there.decision
        _keep(
            dataset,
            replace(last, covered=last.covered + added, taken=last.taken + added),
            there.trained,
        )
    return waiting


def partitions_for(chunks: int) -> int:
    """How many partitions an approximate index of this many chunks gets."""
    return min(max(chunks // PARTITION, 1), MAX_PARTITIONS)


def _misshapen(there: int, wanted: int) -> bool:
    """Whether there are more than twice the wanted partitions, or fewer than half; 0 counts too."""
    return there > 2 * wanted or wanted > 2 * there


def _wants(asking: Asking) -> bool:
    """Whether searches may be approximate at all."""
    return asking.recall < 1 and asking.kind != FLAT


def _unfit(dataset: LanceDataset, there: Coverage, asking: Asking) -> bool:
    """Whether the approximate index is missing, of another kind, or of another size."""
    wanted = kind_for(asking.kind, _dimension(dataset))
    return there.kind != wanted or _misshapen(there.partitions, partitions_for(there.chunks))


def _dimension(dataset: LanceDataset) -> int:
    return int(dataset.schema.field("_vector").type.list_size)


def _make_vector_index(
    dataset: LanceDataset, chunks: int, asking: Asking, helpers: Helpers, reporter: Reporter
) -> int:
    dimension = _dimension(dataset)
    kind = kind_for(asking.kind, dimension)
    metric, partitions = built_by(dataset).metric, partitions_for(chunks)
    # The decision was about the former partitions: no version may hold it with the new ones.
    _keep(dataset, None, None)
    if executors := helpers(chunks):
        wanted = distributed.VectorIndex(kind, metric, partitions, dimension)
        distributed.make_vector_index(dataset, wanted, executors)
    else:
        with training(reporter) as shown:
            dataset.create_index(
                "_vector",
                kind.upper(),
                metric=metric,
                num_partitions=partitions,
                replace=True,
                progress_callback=shown,
            )
    _keep(dataset, None, 0)
    return chunks


def _keep(dataset: LanceDataset, decision: Decision | None, trained: int | None) -> None:
    """Store a decision with the index, in a new version; do nothing if it is unchanged."""
    values = {
        KEY: decision.to_json() if decision else None,
        CHANGED: None if trained is None else str(trained),
    }
    there = dataset.config()
    if any(there.get(key) != value for key, value in values.items()):
        dataset.update_config(values)


def sample_deleted(dataset: LanceDataset, *, asking: Asking, sample: DeletedVectors) -> int:
    """If a probe is due, keep some of the deleted vectors before a compaction drops them."""
    there = coverage_of(dataset)
    if not is_due(there, asking):
        return 0
    rng = np.random.default_rng(dataset.version)
    found = np.empty((0, 0), np.float32)
    # They only make better questions: upkeep goes on without them.
    with suppress(*FOREIGN):
        found = deleted_vectors(dataset, KEPT, rng)
    if len(found):
        sample.add(built_by(dataset).fingerprint, found, rng)
    return len(found)


def probe(
    dataset: LanceDataset,
    *,
    asking: Asking,
    sample: DeletedVectors,
    helpers: Helpers = nobody,
    reporter: Reporter = SILENT,
) -> int:
    """Probe the approximate index and decide how to search it; return the number of questions.

    A probe is due when the index was made, and again once a 256th of its chunks (and more than 500)
    have been deleted since, or twice as many have been deleted or added. It takes one pass over the
    vectors and some hundred searches.
    """
    there = coverage_of(dataset)
    if not is_due(there, asking):
        return 0
    asked = _questions(dataset, asking, sample)
    number = recall.number(asked)
    if not number:
        # Nothing can be compared, so no recall can be promised.
        _keep(dataset, Decision(None, None, now(), 0, asking.recall, there.covered), there.trained)
        return 0
    metric, executors = built_by(dataset).metric, helpers(there.chunks)
    measure = (
        distributed.make_probe(dataset, metric, asked, executors).measure
        if executors
        else make_probe(dataset, metric, asked).measure
    )
    trained = None if there.trained is None else there.trained + recall.changed(there)
    found = decide(measure, there.partitions, promised=asking.recall, may_train=there.may_train)
    if found is None:
        _make_vector_index(dataset, there.chunks, asking, helpers, reporter)
        there, trained = coverage_of(dataset), 0
        found = decide(measure, there.partitions, promised=asking.recall, may_train=False)
    assert found is not None
    _keep(dataset, Decision(*found, now(), number, asking.recall, there.covered), trained)
    return number


def _questions(dataset: LanceDataset, asking: Asking, sample: DeletedVectors) -> recall.Questions:
    recipe, rng = built_by(dataset), np.random.default_rng(dataset.version)
    deleted = sample.read(recipe.fingerprint, recipe.model.dimension)
    return recall.questions(stored_vectors(dataset, rng), deleted, asking.recent, rng)


def drop_versions(dataset: LanceDataset, *, written: Sequence[float]) -> int:
    """Remove versions that nobody reads any more; `written` is when each was made, in order."""
    before = time.time() - KEEP_FOR.total_seconds()
    if sum(t < before for t in written[:-KEEP_VERSIONS]) < MAX_OLD_VERSIONS:
        return 0
    unpin_forgotten(dataset)
    stats = dataset.cleanup_old_versions(
        KEEP_FOR, KEEP_VERSIONS, error_if_tagged_old_versions=False
    )
    return int(stats.old_versions)


def unpin_forgotten(dataset: LanceDataset) -> None:
    """Remove the pins of readers that were killed."""
    before = datetime.now(UTC) - PINNED_FOR
    for tag, info in dataset.tags.list().items():
        if tag.startswith(PIN) and info["created_at"] < before:
            dataset.tags.delete(tag)
