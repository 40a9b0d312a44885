"""How near the vectors of a slice are to a question, by BLAS."""

from __future__ import annotations

import numpy as np

from lakewake.store.hudi.slices import Slice
from lakewake.store.hudi.table import IndexTable


def closeness_within(table: IndexTable, one: Slice, metric: str, vector: np.ndarray) -> np.ndarray:
    """How near each row of a slice is, in single precision; minus infinity if incomparable.

    Args:
        vector: one vector, or several as columns; so is the result.
    """
    matrix = table.matrix(one, len(vector))
    products = matrix @ vector
    with np.errstate(invalid="ignore", divide="ignore"):
        if metric == "dot":
            near = products
        else:
            squares = _squares(table, one, matrix)
            squares = squares if vector.ndim == 1 else squares[:, None]
            near = products / np.sqrt(squares) if metric == "cosine" else 2 * products - squares
    out: np.ndarray = np.where(np.isfinite(near), near, -np.inf)
    return out


def _squares(table: IndexTable, one: Slice, matrix: np.ndarray) -> np.ndarray:
    found: np.ndarray | None = table.derived(one, "squares")
    if found is None:
        found = np.einsum("ij,ij->i", matrix, matrix)
        table.keep(one, "squares", found)
    return found
