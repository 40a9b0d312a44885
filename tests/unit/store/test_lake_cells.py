"""Cells of an index in the lake: training, assigning, splitting and dissolving."""

from __future__ import annotations

import numpy as np
import pytest

from lakewake.progress import Counting
from lakewake.store.hudi import cells as rules
from lakewake.store.hudi.cells import Cells, due, neighbours, number_of_cells, replaced, trained


def clusters(count: int, each: int, dimension: int = 16, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count, dimension)) * 5
    made = centres[:, None] + rng.normal(size=(count, each, dimension))
    vectors: np.ndarray = made.reshape(-1, dimension).astype(np.float32)
    return vectors


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_near_vectors_share_a_cell(metric: str) -> None:
    vectors = clusters(4, 50)
    found = trained(vectors, 4, metric).of(vectors).reshape(4, 50)
    alike = [np.bincount(row).max() / 50 for row in found]
    assert np.mean(alike) > 0.9


@pytest.mark.parametrize(("cells", "rounds"), [(4, rules.ROUNDS), (1, 0)])
def test_training_counts_its_rounds(cells: int, rounds: int) -> None:
    counting = Counting("train", rounds)
    trained(clusters(4, 50), cells, "cosine", counting)
    assert counting.counted.done == rounds


def test_equal_samples_give_equal_cells() -> None:
    vectors = clusters(4, 50)
    assert trained(vectors, 4, "cosine").to_json() == trained(vectors, 4, "cosine").to_json()


def test_cells_are_read_back_unchanged() -> None:
    cells = trained(clusters(3, 9), 3, "l2")
    again = Cells.from_json(cells.to_json())
    assert again.digest == cells.digest
    assert (again.numbers.tolist(), again.metric, again.next) == ([0, 1, 2], "l2", 3)
    np.testing.assert_array_equal(again.centroids, cells.centroids)


@pytest.mark.parametrize("vector", [np.nan, np.inf, 0.0, 3e38])
def test_a_vector_without_a_direction_has_a_cell_too(vector: float) -> None:
    cells = trained(clusters(3, 9), 3, "cosine")
    odd = np.full((1, 16), vector, np.float32)
    assert cells.of(odd)[0] in cells.numbers


def test_an_index_without_vectors_has_one_cell() -> None:
    cells = trained(np.empty((0, 16), np.float32), 5, "cosine")
    assert cells.numbers.tolist() == [0]
    assert cells.of(clusters(1, 3)).tolist() == [0, 0, 0]


def test_there_are_never_more_cells_than_vectors_to_train_them() -> None:
    assert len(trained(clusters(1, 2), 9, "cosine").numbers) == 2


def test_the_cell_of_a_vector_is_the_first_one_searched_for_it() -> None:
    vectors = clusters(8, 30)
    cells = trained(vectors, 8, "cosine")
    for vector, cell in zip(vectors[::7], cells.of(vectors[::7]), strict=True):
        assert cells.near(vector, 3)[0] == cell
        assert len(cells.near(vector, 3)) == 3


def test_the_number_of_cells_grows_with_the_index() -> None:
    assert [number_of_cells(n, 500) for n in (0, 3, 1_000, 130_000)] == [1, 1, 2, 260]


def test_cells_in_shape_are_left_alone() -> None:
    cells = trained(clusters(4, 50), 4, "cosine")
    assert due(dict.fromkeys(range(4), 50), cells, 50) == []


def test_cells_that_doubled_are_due_and_so_are_many_empty_ones() -> None:
    cells = trained(clusters(8, 50), 8, "cosine")
    sizes = dict.fromkeys(range(8), 50)
    assert due({**sizes, 3: 101}, cells, 50) == [3]
    # One empty cell costs nothing; three of eight do.
    assert due({**sizes, 5: 2}, cells, 50) == []
    assert due({**sizes, 5: 2, 6: 0, 7: 1}, cells, 50) == [5, 6, 7]


def test_one_cell_remains_however_empty_all_are() -> None:
    cells = trained(clusters(4, 50), 4, "cosine")
    assert len(due({}, cells, 50)) == 3


def test_a_split_cell_gives_its_vectors_to_new_cells_with_numbers_of_their_own() -> None:
    vectors = clusters(4, 50)
    cells = trained(vectors, 2, "cosine")
    inside = vectors[cells.of(vectors) == 0]
    after = replaced(cells, [0], inside, 25)
    assert 0 not in after.numbers
    assert after.next == 2 + len(inside) // 25
    assert set(after.of(inside)) <= set(after.numbers)
    assert len(set(after.of(inside))) > 1


def test_the_vectors_of_a_dissolved_cell_go_to_its_neighbours() -> None:
    vectors = clusters(4, 50)
    cells = trained(vectors, 4, "cosine")
    few = vectors[cells.of(vectors) == 1][:3]
    after = replaced(cells, [1], few, 50)
    assert after.numbers.tolist() == [0, 2, 3]
    assert after.next == cells.next
    assert 1 not in after.of(few)


def test_neighbours_are_the_nearest_other_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "AROUND", 1)
    numbers = np.arange(4, dtype=np.int32)
    line = np.array([[0, 0], [1, 0], [5, 0], [9, 0]], np.float32)
    cells = Cells(numbers, line, "l2", 4)
    assert neighbours(cells, [0]) == [1]
    assert neighbours(cells, [1, 2]) == [0, 3]
