"""Keeps a Lance index fast to read and small on disk. Each step returns how much it did."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import numpy as np
from lance import LanceDataset

from lakewake.model.recall import Decision
from lakewake.model.recipe import Recipe
from lakewake.store import recall
from lakewake.store.deleted import KEPT, DeletedVectors
from lakewake.store.lance.deleted import deleted_vectors
from lakewake.store.lance.reader import FOREIGN, unpin_forgotten
from lakewake.store.lance.recall import (
    CHANGED,
    KEY,
    coverage_of,
    decide,
    make_probe,
    stored_vectors,
)
from lakewake.store.lance.words import WordFiles, count, slices_of
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
    """

    asking: Asking
    deleted: DeletedVectors
    lookup_min_chunks: int
    words_min_chunks: int

    def steps(
        self, words: WordFiles, written: Sequence[float]
    ) -> dict[str, Callable[[LanceDataset], int]]:
        """Each step, by the name of what it counts; `written` is when each version was made."""
        asking, deleted = self.asking, self.deleted
        return {
            "deleted_sampled": partial(sample_deleted, asking=asking, sample=deleted),
            "fragments_compacted": compact,
            "lookups_made": partial(make_lookups, least=self.lookup_min_chunks),
            "texts_indexed": partial(count_words, files=words, least=self.words_min_chunks),
            "chunks_indexed": partial(index_chunks, asking=asking),
            "approximate_dropped": partial(drop_approximate, asking=asking),
            "questions_probed": partial(probe, asking=asking, sample=deleted),
            "versions_removed": partial(drop_versions, written=written),
        }


def compact(dataset: LanceDataset) -> int:
    """Join small fragments."""
    sizes = [f.metadata.num_rows for f in dataset.get_fragments()]
    if sum(n < SMALL_FRAGMENT for n in sizes) <= MAX_SMALL_FRAGMENTS:
        return 0
    done = dataset.optimize.compact_files(target_rows_per_fragment=SMALL_FRAGMENT)
    return int(done.fragments_removed)


def make_lookups(dataset: LanceDataset, *, least: int) -> int:
    """Index the columns that chunks are looked up by, if there are more than `least` chunks."""
    if dataset.count_rows() <= least:
        return 0
    there = {column for i in dataset.describe_indices() for column in i.field_names}
    wanted = [column for column in LOOKUPS if column not in there]
    for column in wanted:
        dataset.create_scalar_index(column, "BTREE")
    return len(wanted)


def count_words(dataset: LanceDataset, *, files: WordFiles, least: int) -> int:
    """Write the words of the texts to files, once more than a few are missing there."""
    if not built_by(dataset).fields:
        return 0
    _drop_former_index(dataset)
    slices = [s for f in dataset.get_fragments() for s in slices_of(f)]
    there = files.names()
    missing = [s for s in slices if s.name not in there]
    rows = sum(s.rows for s in slices)
    if sum(s.rows for s in missing) <= max(least, rows // WORDS_SHARE):
        return 0
    texts = 0
    for name, counted in count(dataset, missing):
        files.write(name, counted)
        texts += int((counted.lengths >= 0).sum())
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
    if not there.partitions or (asking.recall < 1 and there.chunks >= asking.least * KEEP_SHARE):
        return 0
    for index in dataset.describe_indices():
        if index.field_names == ["_vector"]:
            dataset.drop_index(index.name)
    _keep(dataset, None, None)
    return 1


def index_chunks(dataset: LanceDataset, *, asking: Asking) -> int:
    """Make the approximate index, if there are enough chunks, and add new chunks to all indexes."""
    there = coverage_of(dataset)
    chunks, wanted = there.chunks, partitions_for(there.chunks)
    if asking.recall < 1 and chunks >= asking.least and _misshapen(there.partitions, wanted):
        return _make_vector_index(dataset, chunks)
    indexed = [i.num_rows_indexed for i in dataset.describe_indices()]
    waiting: int = chunks - min(indexed, default=chunks)
    if waiting <= max(MIN_WAITING, chunks // WAITING_SHARE):
        return 0
    # Keep the partitions: left to itself, Lance would merge them into a few large ones, and a
    # search of some partitions would be a search of everything.
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


def _make_vector_index(dataset: LanceDataset, chunks: int) -> int:
    # The decision was about the former partitions: no version may hold it with the new ones.
    _keep(dataset, None, None)
    vectors = dataset.schema.field("_vector").type
    dataset.create_index(
        "_vector",
        # RQ builds faster and finds as well, but only in dimensions that are a multiple of 8.
        "IVF_HNSW_SQ" if vectors.list_size % 8 else "IVF_RQ",
        metric=built_by(dataset).metric,
        num_partitions=partitions_for(chunks),
        replace=True,
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
        found = deleted_vectors(dataset, KEPT // 2, rng)
    if len(found):
        sample.add(built_by(dataset).fingerprint, found, rng)
    return len(found)


def probe(dataset: LanceDataset, *, asking: Asking, sample: DeletedVectors) -> int:
    """Probe the approximate index and decide how to search it; return the number of questions.

    A probe is due when the index was made, and again once a 256th of its chunks (and more than 500)
    have been deleted since, or twice as many have been deleted or added. It takes one pass over the
    vectors and one or two hundred searches.
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
    measure = make_probe(dataset, built_by(dataset).metric, asked).measure
    trained = None if there.trained is None else there.trained + recall.changed(there)
    found = decide(measure, there.partitions, promised=asking.recall, may_train=there.may_train)
    if found is None:
        _make_vector_index(dataset, there.chunks)
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
