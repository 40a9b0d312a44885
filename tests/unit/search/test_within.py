"""All rows within a distance, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import ConfigError, FilterError
from lakewake.model.query import Question
from lakewake.search.run import WITHIN, within
from lakewake.store.memory import MemoryStore
from lakewake.testing.samples import DIMENSION, batch, chunk, frontier, recipe, vector_of

ROWS = WITHIN * 3
EMBEDDER = HashingEmbedder(ModelSettings("hashing", dimension=DIMENSION))


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    store = MemoryStore()
    chunks = [chunk(f"k{n}", f"text {n}", points=n) for n in range(ROWS)]
    # A second chunk of a row: the row counts once, by its nearest chunk.
    chunks += [chunk(f"k{n}", f"more {n}", n=1, points=n) for n in range(50)]
    store.create(recipe(), batch(*chunks), frontier(1), after=0)
    return store


def similarities(vector: np.ndarray) -> dict[str, float]:
    """Key → the cosine of the nearest chunk, by numpy."""
    texts = [(f"k{n}", f"text {n}") for n in range(ROWS)]
    texts += [(f"k{n}", f"more {n}") for n in range(50)]
    best: dict[str, float] = {}
    for key, text in texts:
        held = np.array(vector_of(text))
        cosine = float(held @ vector / np.linalg.norm(held) / np.linalg.norm(vector))
        best[key] = max(best.get(key, -1), cosine)
    return best


@pytest.mark.parametrize("distance", [0.0, 0.05, 0.3, 0.7, 1.0, 1.5, 2.0])
def test_exactly_the_rows_that_numpy_finds_are_returned(
    store: MemoryStore, distance: float
) -> None:
    vector = np.random.default_rng(3).normal(size=DIMENSION)
    found = within(store.open(), EMBEDDER, Question("i", vector=vector.tolist()), distance)  # type: ignore[arg-type]
    wanted = {key for key, cosine in similarities(vector).items() if cosine >= 1 - distance}
    assert {hit.key for hit in found.hits} == wanted
    assert len(found.hits) == len(wanted)
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)
    assert found.instant == "20250101000001"


def test_the_case_needs_more_than_one_search() -> None:
    vector = np.random.default_rng(3).normal(size=DIMENSION)
    assert sum(c >= 0 for c in similarities(vector).values()) > WITHIN


def test_a_filter_applies_before_the_distance(store: MemoryStore) -> None:
    vector = np.random.default_rng(3).normal(size=DIMENSION)
    question = Question("i", vector=vector.tolist(), where="points < 40")
    found = within(store.open(), EMBEDDER, question, 0.9)  # type: ignore[arg-type]
    wanted = {k for k, c in similarities(vector).items() if c >= 0.1 and int(k[1:]) < 40}
    assert {hit.key for hit in found.hits} == wanted
    assert wanted


@pytest.mark.parametrize("distance", [-0.1, float("nan"), float("inf")])
def test_a_distance_that_means_nothing_is_refused(store: MemoryStore, distance: float) -> None:
    with pytest.raises(ConfigError, match="the distance is"):
        within(store.open(), EMBEDDER, Question("i", vector=[1.0] * DIMENSION), distance)  # type: ignore[arg-type]


def test_a_filter_on_an_unknown_column_is_refused(store: MemoryStore) -> None:
    with pytest.raises(FilterError, match="no payload column 'colour'"):
        within(store.open(), EMBEDDER, Question("i", vector=[1.0] * 8, where="colour = 1"), 1)  # type: ignore[arg-type]
