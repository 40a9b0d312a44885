"""Keeps a Lance index quick to read and small on disk. Each step says how much it did."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

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

#: Below this share of them the approximate index goes: a little below it is only not used, so that
#: an index about that size is not trained again and again.
KEEP_SHARE = 0.8
#: Chunks in a partition of the approximate index, about; and partitions at most.
PARTITION, MAX_PARTITIONS = 512, 1024
#: Fewer chunks than this are read through to find some of them.
LOOKUP_MIN_CHUNKS = 30_000
#: The words of this many texts are counted in hundredths of a second, by the first search of a
#: process; beside many that are counted already, those of this share.
WORDS_MIN_CHUNKS, WORDS_SHARE = 2_000, 256
#: What chunks are looked up by, so that a commit costs what it changes.
LOOKUPS = ("_id", "_key", "_hash")
#: Each commit adds a small fragment, and each fragment costs every search a tenth of a millisecond;
#: to join so many takes 20 ms.
MAX_SMALL_FRAGMENTS = 8
#: Larger fragments are left alone, or every compaction would rewrite the index.
SMALL_FRAGMENT = 16_384
#: Chunks that are not in the indexes yet are read through by every search: a thousand beside
#: 130,000 make it a quarter slower. To take them in costs what the index is large: 1 s there.
MIN_WAITING, WAITING_SHARE = 500, 256
KEEP_VERSIONS = 10
#: Longer than any search; what is read for longer is pinned.
KEEP_FOR = timedelta(minutes=10)
#: Dropping versions means reading all their manifests: not for the sake of a few.
MAX_OLD_VERSIONS = 50


def compact(dataset: LanceDataset) -> int:
    """Join small fragments."""
    sizes = [f.metadata.num_rows for f in dataset.get_fragments()]
    if sum(n < SMALL_FRAGMENT for n in sizes) <= MAX_SMALL_FRAGMENTS:
        return 0
    done = dataset.optimize.compact_files(target_rows_per_fragment=SMALL_FRAGMENT)
    return int(done.fragments_removed)


def make_lookups(dataset: LanceDataset, *, least: int) -> int:
    """Index what chunks are looked up by, from so many chunks on."""
    if dataset.count_rows() <= least:
        return 0
    there = {column for i in dataset.describe_indices() for column in i.field_names}
    wanted = [column for column in LOOKUPS if column not in there]
    for column in wanted:
        dataset.create_scalar_index(column, "BTREE")
    return len(wanted)


def count_words(dataset: LanceDataset, *, files: WordFiles, least: int) -> int:
    """Keep the words of the texts in files, once more than a few are not; there may be no texts."""
    if not built_by(dataset).fields:
        return 0
    _drop_former_index(dataset)
    slices = [s for f in dataset.get_fragments() for s in slices_of(f)]
    there = files.names()
    lacking = [s for s in slices if s.name not in there]
    rows = sum(s.rows for s in slices)
    if sum(s.rows for s in lacking) <= max(least, rows // WORDS_SHARE):
        return 0
    texts = 0
    for name, counted in count(dataset, lacking):
        files.write(name, counted)
        texts += int((counted.lengths >= 0).sum())
    files.discard(there - {s.name for s in slices})
    return min(texts, int(dataset.count_rows()) - 1)


def _drop_former_index(dataset: LanceDataset) -> None:
    """Remove Lance's own index of the words, which earlier versions made and nothing asks."""
    for index in dataset.describe_indices():
        if index.field_names == ["_text"]:
            dataset.drop_index(index.name)


def built_by(dataset: LanceDataset) -> Recipe:
    """What the index was built by."""
    return Recipe.from_dict(json.loads(dataset.schema.metadata[b"lakewake.recipe"]))


def drop_approximate(dataset: LanceDataset, *, asking: Asking) -> int:
    """Remove the approximate index where it is not used."""
    there = coverage_of(dataset)
    if not there.partitions or (asking.recall < 1 and there.chunks >= asking.least * KEEP_SHARE):
        return 0
    for index in dataset.describe_indices():
        if index.field_names == ["_vector"]:
            dataset.drop_index(index.name)
    _keep(dataset, None, None)
    return 1


def index_chunks(dataset: LanceDataset, *, asking: Asking) -> int:
    """Make the approximate index, from so many chunks on, and take new chunks into all indexes."""
    there = coverage_of(dataset)
    chunks, wanted = there.chunks, partitions_for(there.chunks)
    if asking.recall < 1 and chunks >= asking.least and _misshapen(there.partitions, wanted):
        return _make_vector_index(dataset, chunks)
    indexed = [i.num_rows_indexed for i in dataset.describe_indices()]
    waiting: int = chunks - min(indexed, default=chunks)
    if waiting <= max(MIN_WAITING, chunks // WAITING_SHARE):
        return 0
    # Into the partitions that there are: left to itself, Lance would join them to a few large ones,
    # and a search that looks at some of them would look at all there is.
    dataset.optimize.optimize_indices(num_indices_to_merge=1)
    if there.decision:
        taken = coverage_of(dataset).covered - there.covered
        last = there.decision
        _keep(
            dataset,
            replace(last, covered=last.covered + taken, taken=last.taken + taken),
            there.trained,
        )
    return waiting


def partitions_for(chunks: int) -> int:
    """How many partitions an approximate index of so many chunks is made with."""
    return min(max(chunks // PARTITION, 1), MAX_PARTITIONS)


def _misshapen(there: int, wanted: int) -> bool:
    """Whether an index has twice the partitions it should have, or half; or there is none."""
    return there > 2 * wanted or wanted > 2 * there


def _make_vector_index(dataset: LanceDataset, chunks: int) -> int:
    # What was decided was about the partitions before: no version has it beside the new ones.
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
    """Keep a decision with the index, as of a version of its own; where nothing is new, do not."""
    values = {
        KEY: decision.to_json() if decision else None,
        CHANGED: None if trained is None else str(trained),
    }
    there = dataset.config()
    if any(there.get(key) != value for key, value in values.items()):
        dataset.update_config(values)


def sample_deleted(dataset: LanceDataset, *, asking: Asking, sample: DeletedVectors) -> int:
    """Keep some of the deleted vectors, before a compaction drops them, where a probe is due."""
    there = coverage_of(dataset)
    if not is_due(there, asking):
        return 0
    rng = np.random.default_rng(dataset.version)
    found = np.empty((0, 0), np.float32)
    # They make a better question, and no more: the rest of upkeep does without them.
    with suppress(*FOREIGN):
        found = deleted_vectors(dataset, KEPT // 2, rng)
    if len(found):
        sample.add(built_by(dataset).fingerprint, found, rng)
    return len(found)


def probe(dataset: LanceDataset, *, asking: Asking, sample: DeletedVectors) -> int:
    """Ask the approximate index, and decide how it is searched; the number of questions.

    It is done when the index is made, and again when a 256th of its chunks (and more than 500)
    were deleted since, or twice as many deleted or taken in. It takes one pass over the vectors,
    and one or two hundred searches.
    """
    there = coverage_of(dataset)
    if not is_due(there, asking):
        return 0
    asked = _questions(dataset, asking, sample)
    number = recall.number(asked)
    if not number:
        # Nothing can be compared, so there is nothing to promise.
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
    """Remove versions that nobody reads any more; `written` says when each was made, in order."""
    before = time.time() - KEEP_FOR.total_seconds()
    if sum(t < before for t in written[:-KEEP_VERSIONS]) < MAX_OLD_VERSIONS:
        return 0
    unpin_forgotten(dataset)
    stats = dataset.cleanup_old_versions(
        KEEP_FOR, KEEP_VERSIONS, error_if_tagged_old_versions=False
    )
    return int(stats.old_versions)
