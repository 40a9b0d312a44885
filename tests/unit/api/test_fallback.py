"""A search for which the index is missing or too old may scan the table, and says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from lakewake.api import Index, Sessions
from lakewake.cli.search import parse_age, show_result
from lakewake.config.settings import IndexSettings, ModelSettings, ServeSettings
from lakewake.errors import ConfigError, IndexMissing, IndexStale, TableError
from lakewake.model.query import Query, SearchResult
from lakewake.model.recipe import ModelIdentity, Recipe
from lakewake.model.rows import Changes
from lakewake.model.timeline import Look, TableIdentity
from lakewake.model.where import Compare
from lakewake.progress import Silent
from lakewake.serve.app import build_app
from lakewake.source import TableMoved, native
from lakewake.source.memory import MemoryTable
from lakewake.source.native import as_lists
from lakewake.store.memory import MemoryStore
from lakewake.sync import IndexParts, sync
from lakewake.sync.scan import scanned, with_scan
from lakewake.sync.wiring import wire
from support.sampling import rid

DIMENSION = 4
SCHEMA = pa.schema([("vec", pa.list_(pa.float32())), ("num", pa.int64())])
RECIPE = Recipe(
    ModelIdentity("column", "vec", DIMENSION, normalized=False), vector="vec", payload=("num",)
)


def values(n: int, vector: list[float] | None = None) -> dict[str, Any]:
    made = np.random.default_rng(n).normal(size=DIMENSION).astype(np.float32).tolist()
    return {"vec": made if vector is None else vector, "num": n}


class TableIndex(Index):
    """An index of a memory table."""

    given: IndexParts

    @property
    def parts(self) -> IndexParts:  # type: ignore[override]
        return self.given


@pytest.fixture
def table() -> MemoryTable:
    table = MemoryTable(RECIPE, SCHEMA)
    table.upsert({rid(f"k{n}"): values(n) for n in range(40)})
    return table


@pytest.fixture
def index(table: MemoryTable, tmp_path: Path) -> TableIndex:
    """Not built yet, with a fallback."""
    settings = IndexSettings(
        "sample",
        str(tmp_path / "table"),
        f"memory://{tmp_path}",
        vector="vec",
        payload=("num",),
        model=ModelSettings("column", "vec", dimension=DIMENSION),
        fallback="scan",
    )
    made = TableIndex(settings, Sessions({}, None, False), Silent())
    embedder = made._load(settings.model, "vec")
    wired = wire(settings, embedder, lambda: pytest.fail("Spark was started"), Silent())
    made.given = replace(wired, table=table, store=MemoryStore())
    return made


def asked() -> Iterator[dict[str, Any]]:
    vector = values(7)["vec"]
    yield {"vector": vector}
    yield {"vector": vector, "k": 3, "offset": 2}
    yield {"vector": vector, "where": "num >= 20 AND num < 30"}
    yield {"vector": vector, "min_score": 0.5}
    yield {"like": rid("k3"), "k": 4}


def test_without_an_index_the_table_is_scanned_and_the_answer_says_so(index: TableIndex) -> None:
    found = index.search(vector=values(7)["vec"], k=3)
    assert found.hits[0].key == "k7"
    assert found.hits[0].payload == {"num": 7}
    assert found.instant == index.parts.table.look(None).newest
    assert found.fallback == "there is no index 'sample' yet"
    assert found.as_dict()["fallback"] == found.fallback


@pytest.mark.parametrize("how", list(asked()), ids=str)
def test_a_scan_finds_what_an_index_finds(index: TableIndex, how: dict[str, Any]) -> None:
    scanned = index.search(**how)
    sync(index.parts)
    indexed = index.search(**how)
    assert indexed.fallback is None
    assert replace(scanned, fallback=None) == indexed


def test_an_index_that_is_too_old_for_the_caller_is_not_searched(
    index: TableIndex, table: MemoryTable
) -> None:
    sync(index.parts)
    assert index.search(vector=values(7)["vec"], max_age=0).fallback is None
    table.upsert({rid("new"): values(7)})
    old = index.search(vector=values(7)["vec"], k=50)
    assert (old.fallback, "new" in {h.key for h in old.hits}) == (None, False)
    found = index.search(vector=values(7)["vec"], k=50, max_age=60)
    assert "behind its table, more than 60 s" in (found.fallback or "")
    assert "new" in {h.key for h in found.hits}
    assert found.instant > old.instant


def test_without_a_fallback_it_is_an_error(index: TableIndex, table: MemoryTable) -> None:
    index.settings = replace(index.settings, fallback="")
    with pytest.raises(IndexMissing):
        index.search(vector=values(7)["vec"])
    sync(index.parts)
    table.upsert({rid("new"): values(7)})
    with pytest.raises(IndexStale, match="behind its table") as refused:
        index.search(vector=values(7)["vec"], max_age=60)
    assert 'fallback = "scan"' in refused.value.hint
    assert refused.value.exit_code == 3


def test_rows_without_a_vector_are_not_found(index: TableIndex, table: MemoryTable) -> None:
    table.upsert({rid("none"): {"vec": None, "num": 1}, rid("zero"): values(0, [0.0] * 4)})
    found = {h.key for h in index.search(vector=values(7)["vec"], k=100).hits}
    assert len(found) == 40
    assert not found & {"none", "zero"}


def test_an_empty_table_has_no_rows(index: TableIndex, table: MemoryTable) -> None:
    table.overwrite({})
    assert index.search(vector=values(7)["vec"]).hits == ()


def test_an_age_and_an_instant_are_refused(index: TableIndex) -> None:
    with pytest.raises(ConfigError, match="has no max_age"):
        index.search(vector=values(7)["vec"], max_age=1, as_of="20250101000000")
    with pytest.raises(ConfigError, match="max_age is -1"):
        index.search(vector=values(7)["vec"], max_age=-1)


def test_a_search_as_of_an_instant_does_not_fall_back(index: TableIndex) -> None:
    with pytest.raises(IndexMissing):
        index.search(vector=values(7)["vec"], as_of="20250101000000")


class Moving(MemoryTable):
    """Gets a commit between the look and the read, this many times."""

    times = 1

    def scan(self, look: Look, *, spark: bool) -> Changes:
        if self.times:
            self.times -= 1
            raise TableMoved
        return super().scan(look, spark=spark)


def test_a_scan_begins_again_if_the_table_moves(index: TableIndex) -> None:
    table = Moving(RECIPE, SCHEMA)
    table.upsert({rid("k1"): values(1)})
    parts = replace(index.parts, table=table)
    assert with_scan(parts, lambda reader: reader.counts(), spark=False) == (1, 1)
    table.times = 100
    with pytest.raises(TableError, match="keeps changing"):
        with_scan(parts, lambda reader: reader.counts(), spark=False)


def test_a_scan_reads_like_any_version_of_an_index(index: TableIndex) -> None:
    reader = scanned(index.parts, spark=False)
    assert reader.counts() == (40, 40)
    assert reader.searching().mode == "exact"
    assert sum(b.num_rows for b in reader.sample(5, ["_id"])) == 5
    assert sum(b.num_rows for b in reader.scan_parts(["_key"])) == 40
    (chunk,) = reader.existing([rid("k3")])[rid("k3")]
    (vector,) = reader.vectors([chunk.hash]).values()
    np.testing.assert_array_equal(vector, values(3)["vec"])
    where = Compare("num", "=", 5)
    found = reader.search(Query(np.array(values(7)["vec"], np.float32), 3, where))
    assert found["_key"].to_pylist() == ["k5"]


def test_the_shell_shows_that_the_table_was_scanned(capsys: pytest.CaptureFixture[str]) -> None:
    show_result(SearchResult("wines", "", (), fallback="there is no index 'wines' yet"))
    assert "the table was scanned: there is no index 'wines' yet" in capsys.readouterr().out


@pytest.mark.parametrize(("given", "seconds"), [("60", 60), ("0", 0), ("5m", 300), ("1.5h", 5400)])
def test_an_age_is_a_number_of_seconds_or_a_duration(given: str, seconds: float) -> None:
    assert parse_age(given) == seconds


def test_another_age_is_refused() -> None:
    with pytest.raises(ConfigError, match="--max-age"):
        parse_age("lately")


def test_http_answers_from_a_scan_and_says_so(index: TableIndex) -> None:
    app = build_app({"sample": index}, ServeSettings(), None)
    client = TestClient(app, base_url="http://127.0.0.1")
    body = {"vector": values(7)["vec"], "max_age": 60}
    answer = client.post("/indexes/sample/search", json=body).json()
    assert answer["fallback"] == "there is no index 'sample' yet"
    index.settings = replace(index.settings, fallback="")
    assert client.post("/indexes/sample/search", json=body).status_code == 503
    sync(index.parts)
    answer = client.post("/indexes/sample/search", json=body).json()
    assert (answer["fallback"], len(answer["hits"])) == (None, 5)


def look(**other: Any) -> Look:
    return Look(TableIdentity("t", "k", "part", "COPY_ON_WRITE"), (), {}, **other)


def test_only_tables_that_hudi_rs_reads_as_spark_does_are_read_without_it() -> None:
    assert native.why_not("/lake/t", look(), RECIPE) == ""
    for path, seen, recipe, why in [
        ("s3a://b/t", look(), RECIPE, "not on a local file system"),
        ("/lake/t", look(merges_contents=True), RECIPE, "in its own way"),
        (
            "/lake/t",
            look(properties={"hoodie.populate.meta.fields": "false"}),
            RECIPE,
            "do not hold their keys",
        ),
        ("/lake/t", look(), replace(RECIPE, payload=("part",)), "partition the table"),
    ]:
        assert why in native.why_not(path, seen, recipe)


@pytest.mark.parametrize(
    ("element", "numbers"),
    [("<f4", [0.1, -3.4e18, 1e-45]), ("<f8", [0.1, -1 / 3, 1e300]), ("<i1", [127, -128, 0])],
)
def test_stored_vectors_become_single_precision_numbers(element: str, numbers: list[Any]) -> None:
    content = np.array(numbers, element).tobytes()
    column = pa.array([content, None, content], pa.binary(len(content)))
    with np.errstate(over="ignore"):
        made = np.array(numbers, element).astype(np.float32).tolist()
    assert as_lists(column, 3).to_pylist() == [made, None, made]
    assert as_lists(column.slice(1), 3).to_pylist() == [None, made]


def test_stored_vectors_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="12 bytes are not 5 numbers"):
        as_lists(pa.array([b"0" * 12], pa.binary(12)), 5)


def test_lists_are_cast_as_they_are() -> None:
    column = pa.array([[1.5], None], pa.list_(pa.float64()))
    assert as_lists(column, 1).type == pa.list_(pa.float32())
    assert json.dumps(as_lists(column, 1).to_pylist()) == "[[1.5], null]"
