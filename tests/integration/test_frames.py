"""Searches from Spark give the answers of `Index.search`, in any session."""

from __future__ import annotations

import datetime
import shutil
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException
from pyspark.sql import Row

import lakewake
from lakewake.api import Index
from lakewake.batch import blocks
from lakewake.errors import ConfigError, FilterError, IndexMissing, SetupError
from lakewake.model.chunks import Batch, index_schema
from lakewake.plan import build_plan
from support.cellar import FIRST, PAYLOAD, WINES, build, make_cellar
from support.hudi.hostile import HOSTILE_TO_SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TEXTS = ["smoky red wine", "citrus in summer", None, "  ", "citrus in summer", "honey"]


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few chunks are many here, so that several tasks compare and merge."""
    monkeypatch.setattr(blocks, "GROUP_BYTES", 2 * 64 * 4)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wines whose texts are cut into several chunks."""
    return make_cellar(tmp_path_factory.mktemp("cellar"), "{tokens = 6}")


@pytest.fixture
def wines(config: Path, spark: SparkSession) -> Index:
    return lakewake.open(config, spark=spark)["wines"]


@pytest.fixture
def queries(spark: SparkSession) -> DataFrame:
    rows = [(n, text) for n, text in enumerate(TEXTS)]
    return spark.createDataFrame(rows, "n int, asked string")


def found(frame: DataFrame) -> dict[int, list[tuple[Any, ...]]]:
    """Question → its hits, best first."""
    out: dict[int, list[tuple[Any, ...]]] = {}
    for row in sorted(frame.collect(), key=lambda row: (row.n, row._rank)):
        hit = (row._rank, row._key, row._partition, row._text, row.country, row.price, row.day)
        out.setdefault(row.n, []).append((*hit, pytest.approx(row._score, abs=1e-5)))
    return out


def searched(index: Index, **how: Any) -> dict[int, list[tuple[Any, ...]]]:
    """The same, by a search for each question."""
    out: dict[int, list[tuple[Any, ...]]] = {}
    for n, text in enumerate(TEXTS):
        hits = index.search(text, exact=True, **how).hits if text and text.strip() else ()
        for rank, h in enumerate(hits, start=1):
            payload = (h.payload[name] for name in ("country", "price", "day"))
            out.setdefault(n, []).append((rank, h.key, h.partition, h.text, *payload, h.score))
    return out


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
def test_a_batch_finds_what_a_search_of_each_question_finds(
    wines: Index, queries: DataFrame, mode: str
) -> None:
    how: dict[str, Any] = {"k": 3, "where": "price < 33 OR price IS NULL", "mode": mode}
    batch = wines.search_batch(queries, text="asked", exact=True, **how)
    own = ["_rank", "_key", "_partition", "_score", "_text", "_instant"]
    assert batch.columns == ["n", "asked", *own, *PAYLOAD.names]
    assert found(batch) == searched(wines, **how)
    assert {row._instant for row in batch.collect()} == {FIRST}


def test_vectors_are_searched_in_a_session_with_hostile_settings(
    wines: Index, spark: SparkSession
) -> None:
    session = spark.newSession()
    for key, value in HOSTILE_TO_SPARK.items():
        session.conf.set(key, value)
    rows = [
        (n, wines.embedder.embed([text])[0].astype(float).tolist())
        for n, text in enumerate(TEXTS)
        if text and text.strip()
    ]
    asked = session.createDataFrame([*rows, (8, None), (9, [0.0] * 64)], "n int, v array<double>")
    batch = wines.search_batch(asked, vector="v", k=4)
    assert batch.columns[:2] == ["n", "_rank"]
    assert found(batch) == searched(wines, k=4)
    one = asked.where("n = 8").select("v")
    assert wines.search_batch(one, vector="v").collect() == []


def test_columns_of_every_type_and_name_are_carried_along(
    wines: Index, spark: SparkSession
) -> None:
    carried = spark.sql(
        """SELECT 'honey' AS `a.b ``c`, 1.50BD AS money, DATE'2024-02-29' AS bought,
        TIMESTAMP'2024-01-01 12:00:00.123456' AS seen, ARRAY('x', NULL) AS tags,
        MAP('k', 1) AS counts, NAMED_STRUCT('x', 1, 'y', NAMED_STRUCT('z', 'deep')) AS nested,
        CAST(NULL AS BIGINT) AS nothing, X'00ff' AS bytes, true AS yes"""
    )
    (row,) = wines.search_batch(carried, text="a.b `c", k=1).collect()
    (before,) = carried.collect()
    assert row[: len(before)] == before
    assert row.money == Decimal("1.50")
    assert row._key == "sweet"


def test_a_range_holds_every_row_within_the_distance_nearest_first(wines: Index) -> None:
    every = wines.search("smoky red wine", k=100, exact=True).hits
    for distance in (0.8, 2.0):
        rows = wines.within("smoky red wine", distance).collect()
        expected = [hit for hit in every if hit.score >= 1 - distance]
        assert [(r._key, r._text, r.price) for r in rows] == [
            (h.key, h.text, h.payload["price"]) for h in expected
        ]
        assert [r._score for r in rows] == pytest.approx([h.score for h in expected], abs=1e-5)
        assert [r._rank for r in rows] == list(range(1, len(rows) + 1))
        assert {r._instant for r in rows} <= {FIRST}
    assert len(every) == len(WINES)
    vector = wines.embedder.embed(["honey"])[0]
    (row,) = wines.within(vector, 2.0, where="_key = 'sweet'").collect()
    assert row.country == "Italy"


def test_the_index_is_a_dataframe(wines: Index) -> None:
    frame = wines.to_dataframe()
    own = ["_key", "_partition", "_field", "_chunk", "_text", "_vector"]
    assert frame.columns == [*own, *PAYLOAD.names, "_instant"]
    with wines.view() as view:
        assert frame.count() == view.counts()[1]
        rows = view.rows([hit.row for hit in wines.search("wine", k=100).hits]).values()
    assert {row["_text"] for row in frame.collect()} == {c.text for r in rows for c in r.chunks}
    (sweet,) = (
        wines.to_dataframe(["day", "_key", "_vector"])
        .where("_key = 'sweet' AND _instant = " + FIRST)
        .limit(1)
        .collect()
    )
    assert sweet.day == datetime.date(2024, 1, 4)
    assert np.linalg.norm(sweet._vector) == pytest.approx(1, abs=1e-5)
    with pytest.raises(ConfigError, match="no column 'colour'"):
        wines.to_dataframe(["colour"])


def test_nothing_is_found_for_no_questions_and_in_an_empty_index(
    wines: Index, queries: DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    assert wines.search_batch(queries.where("n > 100"), text="asked").collect() == []
    empty = lakewake.open(make_cellar(tmp_path), spark=spark)["wines"]
    schema = index_schema(empty.parts.recipe, PAYLOAD)
    after = build_plan(empty.parts.table.look(None), None, empty.parts.recipe).after
    nothing = Batch(schema, schema.empty_table().to_reader)
    empty.parts.store.create(empty.parts.recipe, nothing, after, after=1)
    assert empty.search_batch(queries, text="asked").collect() == []
    assert empty.within("honey", 2.0).collect() == []
    assert empty.to_dataframe().collect() == []


def test_a_version_that_was_removed_is_an_error_and_never_fewer_rows(
    queries: DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    wines = lakewake.open(make_cellar(tmp_path), spark=spark)["wines"]
    frames = [wines.search_batch(queries, text="asked"), wines.within("honey", 2.0)]
    shutil.rmtree(tmp_path / "index" / "wines.g1.lance")
    for frame in frames:
        with pytest.raises((PythonException, Py4JJavaError)) as error:
            frame.collect()
        assert "make the DataFrame again" in str(error.value)


@pytest.mark.parametrize("vector", [[1.0], [float("nan")] * 64, [None] * 64])
def test_a_vector_that_is_not_valid_is_an_error(
    wines: Index, spark: SparkSession, vector: list[Any]
) -> None:
    asked = spark.createDataFrame([(vector,)], "v array<double>")
    with pytest.raises((PythonException, Py4JJavaError), match="64"):
        wines.search_batch(asked, vector="v").collect()


@pytest.mark.parametrize(
    ("how", "fact"),
    [
        ({}, "one column"),
        ({"text": "asked", "vector": "n"}, "one column"),
        ({"text": "missing"}, "no column 'missing'"),
        ({"text": "n"}, "not texts"),
        ({"vector": "asked"}, "not arrays of numbers"),
        ({"text": "asked", "k": 0}, "k is 0"),
        ({"text": "asked", "mode": "other"}, "mode"),
        ({"text": "asked", "where": "colour = 'red'"}, "no payload column"),
    ],
)
def test_questions_that_cannot_be_asked_are_refused_at_once(
    wines: Index, queries: DataFrame, how: dict[str, Any], fact: str
) -> None:
    with pytest.raises(ConfigError, match=fact) as error:
        wines.search_batch(queries, **how)
    assert error.value.hint


@pytest.mark.parametrize("name", ["_rank", "country", "COUNTRY", "_Text"])
def test_a_column_with_a_name_of_the_result_is_refused(
    wines: Index, queries: DataFrame, name: str
) -> None:
    with pytest.raises(ConfigError, match="and so does the result") as error:
        wines.search_batch(queries.withColumnRenamed("n", name), text="asked")
    assert "withColumnRenamed" in error.value.hint


def test_a_range_that_cannot_be_asked_is_refused_at_once(wines: Index) -> None:
    with pytest.raises(ConfigError, match="distance is nan"):
        wines.within("honey", float("nan"))
    with pytest.raises(ConfigError, match="blank"):
        wines.within(" ", 0.5)
    with pytest.raises(ConfigError, match="shape"):
        wines.within([1.0], 0.5)
    with pytest.raises(FilterError):
        wines.within("honey", 0.5, where="colour = 'red'")


def test_questions_of_another_kind_of_session_are_refused_in_one_line(wines: Index) -> None:
    remote = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(SetupError, match="Spark Connect"):
        wines.search_batch(remote, text="asked")
    with pytest.raises(ConfigError, match="not a DataFrame"):
        wines.search_batch([Row(asked="honey")], text="asked")  # type: ignore[arg-type]


def test_an_index_that_is_missing_is_reported(
    config: Path, queries: DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    text = config.read_text().replace("lance://index", f"lance://{tmp_path}/elsewhere")
    other = config.with_name("other.toml")
    other.write_text(text)
    with pytest.raises(IndexMissing):
        lakewake.open(other, spark=spark)["wines"].search_batch(queries, text="asked")


def test_an_index_in_the_lake_gives_the_same_answers(
    config: Path, wines: Index, queries: DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    text = config.read_text().replace("lance://index", f"hudi://{tmp_path}/wines")
    there = config.with_name("lake.toml")
    there.write_text(text)
    lake = lakewake.open(there, spark=spark)["wines"]
    build(lake)
    assert found(lake.search_batch(queries, text="asked", k=3)) == searched(wines, k=3)
    near = [row._key for row in lake.within("honey", 0.9).collect()]
    assert near == [row._key for row in wines.within("honey", 0.9).collect()]
    assert lake.to_dataframe().count() == wines.to_dataframe().count()
