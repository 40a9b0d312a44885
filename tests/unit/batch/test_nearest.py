"""The nearest rows of many questions, compared with one question at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewake.batch import nearest
from lakewake.batch.nearest import Block, Nearest, comparable, lengths
from lakewake.store.ranking import closeness


def made(seed: int, chunks: int, rows: int, *, distinct: int, weighted: bool = False) -> Block:
    """Chunks of some rows; only `distinct` of their vectors differ."""
    rng = np.random.default_rng(seed)
    few = rng.normal(size=(distinct, 5)).astype(np.float32)
    vectors = few[rng.integers(0, distinct, chunks)]
    return Block(
        vectors,
        lengths(vectors),
        rng.choice([0.5, 1.0, 2.0], chunks) if weighted else np.ones(chunks),
        rng.integers(0, rows, chunks),
        np.array([f"id {n:05}" for n in rng.permutation(chunks)], object),
        np.arange(chunks),
    )


def cut(block: Block, size: int) -> list[Block]:
    parts = (block.vectors, block.lengths, block.weights, block.rows, block.ids, block.places)
    return [Block(*(part[n : n + size] for part in parts)) for n in range(0, len(block), size)]


def one_by_one(block: Block, question: np.ndarray, k: int, metric: str) -> list[tuple[int, float]]:
    """The best rows, as a search ranks them: row and score."""
    near = closeness(metric, block.vectors, question)
    if metric == "l2":
        near = near / block.weights**2
    elif metric == "dot":
        near = np.where(near < 0, near / block.weights, near * block.weights)
    else:
        near = near * block.weights
    best: dict[int, float] = {}
    for n in np.lexsort((block.ids.astype(str), -near)):
        best.setdefault(int(block.rows[n]), float(near[n]))
    return list(best.items())[:k]


@given(
    seed=st.integers(0, 1000),
    chunks=st.integers(0, 200),
    rows=st.integers(1, 200),
    distinct=st.integers(1, 200),
    k=st.integers(1, 30),
    size=st.integers(1, 100),
    metric=st.sampled_from(["cosine", "dot", "l2"]),
    weighted=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_blocks_give_the_answers_of_a_search_of_everything(
    seed: int,
    chunks: int,
    rows: int,
    distinct: int,
    k: int,
    size: int,
    metric: str,
    weighted: bool,
) -> None:
    block = made(seed, chunks, rows, distinct=distinct, weighted=weighted)
    questions = np.random.default_rng(seed + 1).normal(size=(7, 5)).astype(np.float32)
    found = Nearest(questions, k, metric)
    for part in cut(block, size):
        found.see(part)
    for n, question in enumerate(questions):
        mine = found.found.take(np.flatnonzero(found.found.question == n))
        expected = one_by_one(block, question, k, metric)
        assert mine.score.tolist() == pytest.approx([score for _, score in expected], abs=1e-9)
        # Rows with equal vectors have equal scores, and which of them is taken does not vary.
        assert {*mine.row.tolist()} == {row for row, _ in expected}


def test_candidates_are_added_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    block = made(1, 500, 400, distinct=3)
    questions = np.random.default_rng(2).normal(size=(20, 5)).astype(np.float32)
    whole = Nearest(questions, 10, "cosine")
    whole.see(block)
    monkeypatch.setattr(nearest, "ADDED", 7)
    monkeypatch.setattr(nearest, "COMPARED", 200)
    few = Nearest(questions, 10, "cosine")
    few.see(block)
    for one, other in zip(few.found, whole.found, strict=True):
        assert one.tolist() == other.tolist()


def test_few_chunks_are_compared_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    exactly = Nearest._exactly

    def counted(self: Nearest, block: Block, question: np.ndarray, chunk: np.ndarray) -> np.ndarray:
        compared.append(len(chunk))
        return exactly(self, block, question, chunk)

    monkeypatch.setattr(Nearest, "_exactly", counted)
    block = made(3, 5_000, 5_000, distinct=5_000)
    found = Nearest(np.random.default_rng(4).normal(size=(50, 5)).astype(np.float32), 10, "cosine")
    for part in cut(block, 1_000):
        found.see(part)
    assert sum(compared) < 50 * 10 * 6


def test_vectors_without_a_direction_cannot_be_compared_by_cosine() -> None:
    vectors = np.array([[1, 0], [0, 0], [np.nan, 1], [np.inf, 1]], np.float32)
    assert comparable(vectors, lengths(vectors), "cosine").tolist() == [True, False, False, False]
    assert comparable(vectors, lengths(vectors), "dot").tolist() == [True, True, False, False]


def test_very_large_and_very_small_vectors_are_compared() -> None:
    vectors = np.array([[1e30, 1e30], [1e-30, 0], [1, -1]], np.float32)
    block = Block(
        vectors,
        lengths(vectors),
        np.ones(3),
        np.arange(3),
        np.array([*"abc"], object),
        np.arange(3),
    )
    found = Nearest(np.array([[1e25, 1e25]], np.float32), 3, "cosine")
    found.see(block)
    assert found.found.id.tolist() == [*"abc"]
    assert found.found.score.tolist() == pytest.approx([1, 0.5**0.5, 0])
