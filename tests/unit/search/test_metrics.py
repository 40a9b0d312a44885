"""Searches by the cosine, the dot product and the distance, against numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lakewake.errors import RecipeMismatch
from lakewake.model.chunks import Batch, chunk_id, index_schema, text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.plan import Action
from lakewake.model.query import Question, SearchResult
from lakewake.model.recipe import ModelIdentity, Recipe, TextField
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from lakewake.progress import Silent
from lakewake.search import search
from lakewake.search.run import PLAIN, Ranking, within
from lakewake.store import StoreReader
from lakewake.store.memory import MemoryStore
from lakewake.sync import SyncOptions, sync
from lakewake.verify.vectors import Vectors, check_vectors
from support.sampling import rid, sample_parts, values

DIMENSION = 4
FIELDS = (TextField("title", "{title}"), TextField("body", "{body}"))
METRICS = ("cosine", "dot", "l2")


class Fixed:
    """Embeds every text as the same vector."""

    def __init__(self, vector: Sequence[float]) -> None:
        self.identity = ModelIdentity("hashing", "fixed", DIMENSION)
        self.vector = np.array([vector], np.float32)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.repeat(self.vector, len(texts), axis=0)


def vectors(count: int = 12) -> np.ndarray:
    made = np.random.default_rng(3).normal(size=(count, DIMENSION)).astype(np.float32)
    made[0] = 0
    return made * np.arange(1, count + 1)[:, None]


def reader(metric: str, held: np.ndarray, field: str = "title") -> StoreReader:
    recipe = Recipe(ModelIdentity("hashing", "fixed", DIMENSION), FIELDS, metric=metric)
    schema = index_schema(recipe, pa.schema([]))
    rows = [
        {
            "_id": chunk_id(RowId("", f"{n:02}"), name, 0),
            "_key": f"{n:02}",
            "_partition": "",
            "_field": name,
            "_chunk": 0,
            "_hash": text_hash(f"{n}"),
            "_text": f"{n}",
            "_vector": vector.tolist(),
        }
        for n, vector in enumerate(held)
        for name in [("title", "body")[n % 2] if field == "both" else field]
    ]
    table, store = pa.Table.from_pylist(rows, schema), MemoryStore()
    then = Frontier(TableIdentity("t", "k", "", "COPY_ON_WRITE"), {})
    store.create(recipe, Batch(schema, table.to_reader), then, after=0)
    found = store.open()
    assert found is not None
    return found


def near(metric: str, held: np.ndarray, asked: np.ndarray) -> np.ndarray:
    held, asked = held.astype(np.float64), asked.astype(np.float64)
    if metric == "l2":
        return -np.linalg.norm(held - asked, axis=1)
    products: np.ndarray = held @ asked
    if metric == "dot":
        return products
    with np.errstate(invalid="ignore"):
        return products / np.linalg.norm(held, axis=1) / np.linalg.norm(asked)


ASKED = np.array([0.5, -1.0, 2.0, 0.25], np.float32)


def ask(held: StoreReader, ranking: Ranking = PLAIN, **more: object) -> SearchResult:
    given = {"text": None, "vector": ASKED.tolist(), "k": 100, **more}
    return search(held, Fixed(ASKED), Question("wines", **given), ranking)  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", METRICS)
def test_the_score_is_that_of_the_metric_and_the_similarity_the_cosine(metric: str) -> None:
    held = vectors()
    hits = ask(reader(metric, held)).hits
    scores, cosines = near(metric, held, ASKED), np.nan_to_num(near("cosine", held, ASKED))
    expected = [n for n in np.argsort(-scores, kind="stable") if not np.isnan(scores[n])]
    assert [int(hit.key) for hit in hits] == expected
    np.testing.assert_allclose([hit.score for hit in hits], scores[expected], rtol=1e-6)
    np.testing.assert_allclose([hit.similarity for hit in hits], cosines[expected], atol=1e-6)
    assert len(hits) == len(held) - (metric == "cosine"), "a zero vector has no cosine"


@pytest.mark.parametrize("metric", METRICS)
def test_min_score_is_in_the_sense_of_the_metric(metric: str) -> None:
    held = vectors()
    scores = near(metric, held, ASKED)
    limit = float(np.nanmedian(scores))
    found = {int(hit.key) for hit in ask(reader(metric, held), min_score=limit).hits}
    assert found == set(np.flatnonzero(scores >= limit).tolist())
    assert 0 < len(found) < len(held)


@pytest.mark.parametrize("metric", METRICS)
def test_a_distance_is_in_the_sense_of_the_metric(metric: str) -> None:
    held = vectors()
    scores = near(metric, held, ASKED)
    limit = float(np.nanmedian(scores))
    distance = (1 - limit if metric == "cosine" else -limit) + 1e-6
    asked = Question("wines", None, ASKED.tolist(), 1)
    found = within(reader(metric, held), Fixed(ASKED), asked, distance)  # type: ignore[arg-type]
    expected = set(np.flatnonzero(scores >= limit - 1e-6).tolist())
    assert {int(hit.key) for hit in found.hits} == expected
    assert 0 < len(expected) < len(held)


@pytest.mark.parametrize("metric", ["dot", "l2"])
def test_a_larger_weight_never_moves_a_row_back(metric: str) -> None:
    held, both = vectors(), reader(metric, vectors(), "both")
    scores = near(metric, held, ASKED)
    weights = np.where(np.arange(len(held)) % 2, 1.0, 4.0)
    weighted = np.where(scores < 0, scores / weights, scores * weights)
    hits = ask(both, Ranking({"title": 4.0})).hits
    np.testing.assert_allclose([h.score for h in hits], np.sort(weighted)[::-1], rtol=1e-6)
    assert (weighted >= scores).all()


@pytest.mark.parametrize("metric", METRICS)
def test_rows_like_another_are_those_near_its_vector(metric: str) -> None:
    held = vectors()
    like = search(
        reader(metric, held), Fixed(ASKED), Question("wines", None, None, 3, like=RowId("", "05"))
    )
    scores = near(metric, held, held[5])
    best = [n for n in np.argsort(-np.nan_to_num(scores, nan=-np.inf)) if n != 5][:3]
    assert [int(hit.key) for hit in like.hits] == best


@pytest.mark.parametrize("metric", ["dot", "l2"])
def test_rows_like_one_without_a_direction_are_found(metric: str) -> None:
    found = search(
        reader(metric, vectors()),
        Fixed(ASKED),
        Question("wines", None, None, 3, like=RowId("", "00")),
    )
    assert len(found.hits) == 3


@pytest.mark.parametrize(("metric", "wrong"), [("cosine", 0), ("dot", 1), ("l2", 1)])
def test_verify_compares_lengths_if_the_metric_does(metric: str, wrong: int) -> None:
    held = reader(metric, np.stack([ASKED, ASKED * 2]))
    with Silent().stage("check vectors") as stage:
        checked = check_vectors(held, Fixed(ASKED), Vectors.ALL, stage)  # type: ignore[arg-type]
    assert (checked.chunks, len(checked.rows)) == (2, wrong)


def test_another_metric_needs_a_new_generation_and_embeds_nothing() -> None:
    parts = sample_parts()
    parts.table.upsert({rid("a"): values("one"), rid("b"): values("two")})
    sync(parts)
    parts.embedder.received.clear()
    changed = replace(parts, recipe=replace(parts.recipe, metric="l2"))
    with pytest.raises(RecipeMismatch, match="metric was 'cosine', is now 'l2'"):
        sync(changed)
    report = sync(changed, SyncOptions(rebuild=True))
    assert (report.action, report.embedded, parts.embedder.received) == (Action.BUILD, 0, [])
    index = parts.store.open()
    assert index is not None
    assert (index.generation, index.recipe().metric) == (2, "l2")
