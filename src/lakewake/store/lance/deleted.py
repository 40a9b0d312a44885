"""Deleted vectors of a Lance index. They stay in its files until these are rewritten."""

from __future__ import annotations

import numpy as np
from lance import LanceDataset, LanceFragment
from lance.file import LanceFileReader

from lakewake.store.ranking import as_matrix


def deleted_vectors(dataset: LanceDataset, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Some of the vectors that were deleted and whose files are still there."""
    dimension = dataset.schema.field("_vector").type.list_size
    thinned = [f for f in dataset.get_fragments() if f.num_deletions]
    weights = np.array([f.num_deletions for f in thinned], np.float64)
    found = [np.empty((0, dimension), np.float32)]
    if len(thinned):
        shares = rng.multinomial(wanted, weights / weights.sum())
        for fragment, share in zip(thinned, shares, strict=True):
            if share:
                found.append(_deleted_of(dataset, fragment, int(share), dimension, rng))
    joined: np.ndarray = np.concatenate(found)
    return joined


def _deleted_of(
    dataset: LanceDataset,
    fragment: LanceFragment,
    wanted: int,
    dimension: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Some of a fragment's deleted vectors: the rows of its file that Lance does not list."""
    living = dataset.scanner(columns=[], with_row_address=True, fragments=[fragment]).to_table()
    offsets = living["_rowaddr"].to_numpy() & np.uint64(0xFFFFFFFF)
    gone = np.setdiff1d(np.arange(fragment.physical_rows, dtype=np.uint64), offsets)
    picked = np.sort(rng.permutation(gone)[:wanted]).tolist()
    location = f"{dataset.uri.rstrip('/')}/data/{fragment.data_files()[0].path}"
    file = LanceFileReader(location, dataset.latest_storage_options(), columns=["_vector"])
    return as_matrix(file.take_rows(picked).to_table()["_vector"].drop_null(), dimension)
