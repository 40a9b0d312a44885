"""Upkeep of a large Lance index by executors. Each task reads some fragments of one version.

What tasks write is in the dataset's folder, but no version names it before this process commits it,
once. If nothing is committed, Lance removes it together with old versions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
from lance import LanceDataset
from lance.dataset import Index

from lakewake.errors import StoreError
from lakewake.model.recall import Effort, Probed
from lakewake.store import recall
from lakewake.store.executors import Executors, grouped
from lakewake.store.lance import recall as lance_recall
from lakewake.store.lance.kinds import RQ
from lakewake.store.lance.reader import FOREIGN, brief
from lakewake.store.lance.words import WordFiles, slices_of, write_words
from lakewake.store.recall import K, Questions

T = TypeVar("T")

#: Executors help an index of this many chunks: below, this process is as fast and needs no memory.
DISTRIBUTED_CHUNKS = 30_000
#: About how many chunks a part of an index holds at most, so that a lost executor loses little.
PART_CHUNKS = 250_000
#: A part with fewer rows may hold nothing but the checkpoint, and Lance makes no index of that.
LEAST_ROWS = 1_000
#: Vectors that each partition is trained on, and rounds of training. Lance alone takes 256 and 50:
#: three times as long, for partitions that are not better.
TRAINED, ROUNDS = 64, 50
#: The names that Lance gives to an index of one column.
NAME = "{}_idx"


@dataclass(frozen=True)
class VectorIndex:
    """An approximate index that is to be made."""

    kind: str
    metric: str
    partitions: int
    dimension: int


@dataclass(frozen=True)
class Model:
    """What all parts of an approximate index share, so that they can be merged.

    Attributes:
        rotation: how RQ turns vectors; None for other kinds.
    """

    centroids: pa.FixedSizeListArray
    rotation: str | None


def make_vector_index(dataset: LanceDataset, wanted: VectorIndex, helpers: Executors) -> None:
    """Train and build the approximate index on executors, and commit it once."""
    [model] = _run(helpers, _train, [(dataset, wanted)])
    groups = fragment_groups(dataset, helpers)
    built = _run(helpers, _vector_part, [(dataset, wanted, model, group) for group in groups])
    [whole] = _run(helpers, _merge, [(dataset, built)])
    dataset.commit_existing_index_segments(NAME.format("_vector"), "_vector", [whole])


def make_lookups(dataset: LanceDataset, columns: Sequence[str], helpers: Executors) -> None:
    """Build an index of each of these columns on executors, and commit it."""
    groups = fragment_groups(dataset, helpers)
    size = len(groups)
    tasks = [(dataset, column, group) for column in columns for group in groups]
    built = _run(helpers, _lookup_part, tasks)
    parts = [(dataset, built[n : n + size]) for n in range(0, len(built), size)]
    for column, whole in zip(columns, _run(helpers, _merge, parts), strict=True):
        dataset.commit_existing_index_segments(NAME.format(column), column, [whole])


def count_words(
    dataset: LanceDataset, files: WordFiles, names: Collection[str], helpers: Executors
) -> int:
    """Let executors write the words of these slices to files; return the number of texts."""
    groups, wanted = fragment_groups(dataset, helpers), frozenset(names)
    return sum(_run(helpers, _words, [(dataset, files, wanted, group) for group in groups]))


def add_to_indexes(dataset: LanceDataset, helpers: Executors) -> None:
    """Let an executor add new chunks to all indexes, which reads the codes of all chunks."""
    _run(helpers, _optimize, [(dataset,)])
    dataset.checkout_latest()


def make_probe(
    dataset: LanceDataset, metric: str, questions: Questions, helpers: Executors
) -> DistributedProbe:
    """Answer the questions exactly, each executor by its share of the vectors."""
    asked, groups = recall.every(questions), fragment_groups(dataset, helpers)
    near = _run(
        helpers,
        lance_recall.nearest_distances,
        [(dataset, metric, asked, group) for group in groups],
    )
    nearest: np.ndarray = np.sort(np.concatenate(near, axis=1), axis=1)[:, :K]
    return DistributedProbe(dataset, metric, questions, lance_recall.farthest(nearest), helpers)


@dataclass(frozen=True)
class DistributedProbe:
    """Questions with their exact answers, asked by executors: they hold the index's codes."""

    dataset: LanceDataset
    metric: str
    questions: Questions
    farthest: np.ndarray
    helpers: Executors

    def measure(self, effort: Effort) -> Probed:
        """Measure what share of the nearest chunks an approximate search finds."""
        asked = recall.every(self.questions)
        tasks = [
            (self.dataset, self.metric, asked[some], self.farthest[some], effort)
            for some in np.array_split(np.arange(len(asked)), self.helpers.parallel)
            if len(some)
        ]
        shares = [share for found in _run(self.helpers, _shares, tasks) for share in found]
        return recall.judged(self.questions, shares, effort)


def fragment_groups(dataset: LanceDataset, helpers: Executors) -> list[tuple[int, ...]]:
    """The fragments of a version, in a group for each task."""
    sizes = {f.fragment_id: f.metadata.num_rows for f in dataset.get_fragments()}
    parts = max(helpers.parallel, -(-sum(sizes.values()) // PART_CHUNKS))
    return grouped(sizes, parts, least=LEAST_ROWS)


def _run(helpers: Executors, work: Callable[..., T], each: Iterable[tuple[object, ...]]) -> list[T]:
    """Do the work for each of these arguments on executors."""
    return helpers.run([partial(_working, work, *arguments) for arguments in each])


def _working(work: Callable[..., T], *arguments: object) -> T:
    """Do it on an executor; an error names what is wrong there."""
    try:
        return work(*arguments)
    except FOREIGN as error:
        raise StoreError(
            f"executors cannot work on the files of the index: {brief(error)}",
            hint="put the store where all machines reach it under the same path, and check that "
            "executors may write there",
        ) from error


def _train(dataset: LanceDataset, wanted: VectorIndex) -> Model:
    # Only here: the module's types have no stubs, and no other task needs it.
    from lance.lance import indices

    centroids = indices.train_ivf_model(
        dataset._ds,
        "_vector",
        wanted.dimension,
        wanted.partitions,
        wanted.metric,
        TRAINED,
        ROUNDS,
        None,
    )
    rotation = indices.build_rq_model(wanted.dimension) if wanted.kind == RQ else None
    return Model(centroids, rotation)


def _vector_part(
    dataset: LanceDataset, wanted: VectorIndex, model: Model, fragments: Sequence[int]
) -> Index:
    return dataset.create_index_uncommitted(
        "_vector",
        wanted.kind.upper(),
        name=NAME.format("_vector"),
        metric=wanted.metric,
        replace=True,
        num_partitions=len(model.centroids),
        ivf_centroids=model.centroids,
        rabitq_model=model.rotation,
        fragment_ids=list(fragments),
    )


def _lookup_part(dataset: LanceDataset, column: str, fragments: Sequence[int]) -> Index:
    return dataset.create_index_uncommitted(
        column, "BTREE", name=NAME.format(column), replace=True, fragment_ids=list(fragments)
    )


def _merge(dataset: LanceDataset, parts: Sequence[Index]) -> Index:
    """One segment, since a search would ask several of them one by one."""
    return parts[0] if len(parts) == 1 else dataset.merge_existing_index_segments(list(parts))


def _words(
    dataset: LanceDataset, files: WordFiles, names: frozenset[str], fragments: Sequence[int]
) -> int:
    texts = 0
    for fragment in map(dataset.get_fragment, fragments):
        wanted = [one for one in slices_of(fragment) if one.name in names]
        texts += write_words(dataset, files, wanted)
    return texts


def _optimize(dataset: LanceDataset) -> None:
    dataset.optimize.optimize_indices(num_indices_to_merge=1)


def _shares(
    dataset: LanceDataset, metric: str, asked: np.ndarray, farthest: np.ndarray, effort: Effort
) -> list[float]:
    probe = lance_recall.Probe(dataset, metric, {"": asked}, farthest)
    return probe.shares(effort)
