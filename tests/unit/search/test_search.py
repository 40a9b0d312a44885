"""One search, from the query to the hits, on the memory store."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import ConfigError, FilterError, RecipeMismatch, StoreError
from lakewake.model.chunks import Batch, chunk_id, index_schema, text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.query import Question
from lakewake.model.recipe import Recipe, TextField
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from lakewake.search import search
from lakewake.store import StoreReader
from lakewake.store.memory import MemoryReader, MemoryStore

PAYLOAD = pa.schema({"country": pa.string(), "price": pa.float64(), "tags": pa.list_(pa.string())})
WINES: list[tuple[str, list[str], str, float | None]] = [
    ("smoky", ["smoky red with leather", "smoky leather finish"], "Italy", 30.0),
    ("fresh", ["fresh white with citrus"], "France", 12.0),
    ("sweet", ["sweet wine with honey", "smoky honey"], "Italy", None),
]


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder(ModelSettings(provider="hashing", dimension=64))


def chunk_of(
    embedder: HashingEmbedder, key: str, n: int, text: str, values: dict[str, Any]
) -> dict[str, Any]:
    return {
        "_id": chunk_id(RowId("p", key), "text", n),
        "_key": key,
        "_partition": "p",
        "_field": "text",
        "_chunk": n,
        "_hash": text_hash(text),
        "_instant": "20250101000000",
        "_text": text,
        "_vector": embedder.embed([text])[0].tolist(),
        **values,
    }


@pytest.fixture
def reader(embedder: HashingEmbedder) -> StoreReader:
    recipe = Recipe(embedder.identity, (TextField("text", "{text}"),), payload=tuple(PAYLOAD.names))
    schema = index_schema(recipe, PAYLOAD)
    rows = [
        chunk_of(embedder, key, n, text, {"country": country, "price": price, "tags": ["x"]})
        for key, texts, country, price in WINES
        for n, text in enumerate(texts)
    ]
    table = pa.Table.from_pylist(rows, schema)
    identity = TableIdentity("wines", "wine_id", "", "COPY_ON_WRITE")
    frontier = Frontier(identity, {"20250101000000": "2", "20250102000000": "1"})
    store = MemoryStore()
    store.create(recipe, Batch(schema, table.to_reader), frontier, after=0)
    embedder.received.clear()
    opened = store.open()
    assert opened is not None
    return opened


def ask(text: str | None = "smoky red with leather", **given: Any) -> Question:
    return Question("wines", text, **given)


def test_the_nearest_row_comes_first_with_its_best_chunk(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    result = search(reader, embedder, ask(k=2))
    first = result.hits[0]
    assert (first.key, first.partition, first.field, first.chunk) == ("smoky", "p", "text", 0)
    assert first.text == "smoky red with leather"
    assert first.similarity == pytest.approx(1.0)
    assert first.score == first.similarity
    assert embedder.received == ["smoky red with leather"]


def test_k_counts_rows_and_each_row_comes_once(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    hits = search(reader, embedder, ask(k=2)).hits
    assert len(hits) == 2
    assert len({hit.key for hit in hits}) == 2
    assert {hit.key for hit in search(reader, embedder, ask(k=9)).hits} == {w[0] for w in WINES}


@pytest.mark.parametrize(
    ("column", "value"),
    [("_text", "forged"), ("_key", "fresh"), ("_partition", ""), ("_field", "x"), ("_chunk", 7)],
)
def test_a_chunk_that_contradicts_itself_is_not_served(
    reader: StoreReader, embedder: HashingEmbedder, column: str, value: object
) -> None:
    assert isinstance(reader, MemoryReader)
    chunks = reader.held.to_pylist()
    chunks[0][column] = value
    damaged = replace(reader, held=pa.Table.from_pylist(chunks, schema=reader.schema()))
    with pytest.raises(StoreError, match="contradicts itself") as caught:
        search(damaged, embedder, ask(k=9))
    assert "lakewake verify wines --repair" in caught.value.hint


def test_hits_come_best_first(reader: StoreReader, embedder: HashingEmbedder) -> None:
    scores = [hit.score for hit in search(reader, embedder, ask(k=9)).hits]
    assert scores == sorted(scores, reverse=True)


def test_the_payload_holds_the_columns_of_the_table_and_none_of_ours(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    hit = search(reader, embedder, ask(k=1)).hits[0]
    assert hit.payload == {"country": "Italy", "price": 30.0, "tags": ["x"]}


def test_the_answer_names_the_instant_that_completed_last(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    result = search(reader, embedder, ask())
    assert (result.index, result.instant) == ("wines", "20250101000000")
    assert json.loads(json.dumps(result.as_dict()))["hits"][0]["key"] == "smoky"


def test_a_filter_leaves_out_rows_that_do_not_match_and_nulls(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    def keys(where: str) -> set[str]:
        return {hit.key for hit in search(reader, embedder, ask(k=9, where=where)).hits}

    assert keys("country = 'Italy'") == {"smoky", "sweet"}
    assert keys("country = 'Italy' AND price < 40") == {"smoky"}
    assert keys("NOT (price < 20)") == {"smoky"}
    assert keys("_key IN ('fresh')") == {"fresh"}
    assert keys("price > 1000") == set()


def test_a_vector_is_searched_for_unchanged(reader: StoreReader, embedder: HashingEmbedder) -> None:
    vector = embedder.embed(["sweet wine with honey"])[0]
    embedder.received.clear()
    for given in (vector.tolist(), vector):
        assert search(reader, embedder, ask(None, vector=given, k=1)).hits[0].key == "sweet"
    assert embedder.received == []


def test_a_vector_needs_no_model(reader: StoreReader) -> None:
    other = HashingEmbedder(ModelSettings(provider="hashing", dimension=32))
    assert search(reader, other, ask(None, vector=[1.0] * 64, k=1)).hits


def test_a_text_for_an_index_of_another_model_is_refused_with_what_differs(
    reader: StoreReader,
) -> None:
    other = HashingEmbedder(ModelSettings(provider="hashing", dimension=32))
    with pytest.raises(RecipeMismatch, match="dimension 64 ≠ 32"):
        search(reader, other, ask())
    assert other.received == []


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        (ask(k=0), "k is 0"),
        (ask(k=-1), "k is -1"),
        (ask(" \n"), "blank"),
        (ask(""), "blank"),
        (ask(None), "a text, a vector, or a row"),
        (ask("x", vector=[1.0] * 64), "a text, a vector, or a row"),
        (ask(None, vector=[1.0] * 3), "64 dimensions"),
        (ask(None, vector=[]), "64 dimensions"),
        (ask(None, vector=["x"] * 64), "not a list of numbers"),
        (ask(None, vector=[float("nan")] * 64), "not finite"),
    ],
)
def test_an_invalid_query_is_refused_before_anything_is_embedded(
    reader: StoreReader, embedder: HashingEmbedder, question: Question, fact: str
) -> None:
    with pytest.raises(ConfigError, match=fact):
        search(reader, embedder, question)
    assert embedder.received == []


@pytest.mark.parametrize("where", ["contry = 'x'", "price = 'x'", "tags = 'x'", "price =", "1 = 1"])
def test_an_invalid_filter_is_refused_before_anything_is_embedded(
    reader: StoreReader, embedder: HashingEmbedder, where: str
) -> None:
    with pytest.raises(FilterError):
        search(reader, embedder, ask(where=where))
    assert embedder.received == []
