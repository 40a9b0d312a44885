"""Rows are sliced by their bytes, and many ids are kept outside memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakewake.model.weights import cuts, weights
from lakewake.sync import spool
from lakewake.sync.spool import Ids


def test_slices_have_no_more_rows_and_bytes_than_allowed():
    sizes = np.array([1, 1, 1, 5, 5, 9, 1])
    assert list(cuts(sizes, 2, 10)) == [(0, 2), (2, 2), (4, 1), (5, 2)]


def test_a_row_that_is_too_large_is_a_slice_of_its_own():
    assert list(cuts(np.array([1, 50, 1]), 100, 10)) == [(0, 1), (1, 1), (2, 1)]


def test_no_rows_make_no_slice():
    assert list(cuts(np.array([]), 100, 10)) == []


def test_the_size_of_texts_and_lists_includes_their_content():
    columns = {
        "text": pa.array(["", "x" * 1000, None]),
        "vector": pa.array([[1.0] * 100, None, [1.0]], pa.list_(pa.float32())),
    }
    light, text, list_ = weights(pa.RecordBatch.from_pydict(columns))
    assert 400 <= light < 450
    assert 1000 <= text < 1020
    assert list_ < 50


def test_the_size_of_a_sliced_batch_counts_only_its_rows():
    batch = pa.RecordBatch.from_pydict({"text": ["x" * 1000, "y", "zz"]})
    assert weights(batch.slice(1)).tolist() == [1, 2]


@pytest.mark.parametrize("lots", [1, 3, 5])
def test_any_number_of_ids_can_be_read_in_order_repeatedly(lots, monkeypatch):
    monkeypatch.setattr(spool, "HELD_IDS", 10)
    ids = Ids()
    for lot in range(lots):
        ids.add([f"{lot}-{n}" for n in range(8)])
    expected = [f"{lot}-{n}" for lot in range(lots) for n in range(8)]
    assert list(ids) == list(ids) == expected
    assert len(ids) == len(expected)
    assert "0-7" in ids
    assert "nothing" not in ids
    ids.add(["later"])
    assert list(ids)[-1] == "later"


def test_two_iterations_over_ids_in_a_file_are_independent(monkeypatch):
    monkeypatch.setattr(spool, "HELD_IDS", 2)
    ids = Ids()
    for n in range(9):
        ids.add([str(n)])
    assert list(zip(ids, ids, strict=True)) == [(str(n), str(n)) for n in range(9)]
