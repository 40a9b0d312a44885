"""Keeps a Lance index quick to read and small on disk. Each step says how much it did."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import timedelta

from lance import LanceDataset

from lakewake.model.recipe import Recipe
from lakewake.store.lance_reader import partitions_of, unpin_forgotten
from lakewake.store.lance_words import WordFiles, count, slices_of

#: Fewer chunks than this are searched exactly in a fraction of a second.
ANN_MIN_CHUNKS = 100_000
#: Fewer chunks than this are read through to find some of them.
LOOKUP_MIN_CHUNKS = 30_000
#: The words of so many texts are counted in a few hundredths of a second, by the first search of a
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


def index_chunks(dataset: LanceDataset, *, least: int) -> int:
    """Make the approximate index, from so many chunks on, and take new chunks into all indexes."""
    chunks = dataset.count_rows() - 1
    if chunks >= least and _misshapen(partitions_of(dataset), partitions_for(chunks)):
        return _make_vector_index(dataset, chunks)
    indexed = [i.num_rows_indexed for i in dataset.describe_indices()]
    waiting: int = chunks - min(indexed, default=chunks)
    if waiting <= max(MIN_WAITING, chunks // WAITING_SHARE):
        return 0
    # Into the partitions that there are: left to itself, Lance would join them to a few large ones,
    # and a search that looks at some of them would look at all there is.
    dataset.optimize.optimize_indices(num_indices_to_merge=1)
    return waiting


def partitions_for(chunks: int) -> int:
    """How many partitions an approximate index of so many chunks is made with."""
    return min(max(chunks // 512, 1), 1024)


def _misshapen(there: int, wanted: int) -> bool:
    """Whether an index has twice the partitions it should have, or half; or there is none."""
    return there > 2 * wanted or wanted > 2 * there


def _make_vector_index(dataset: LanceDataset, chunks: int) -> int:
    vectors = dataset.schema.field("_vector").type
    dataset.create_index(
        "_vector",
        # RQ builds faster and finds as well, but only in dimensions that are a multiple of 8.
        "IVF_HNSW_SQ" if vectors.list_size % 8 else "IVF_RQ",
        metric=built_by(dataset).metric,
        num_partitions=partitions_for(chunks),
        replace=True,
    )
    return chunks


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
