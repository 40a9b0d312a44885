"""SQL in a Spark session: the same answers as `Index.search`, and indexes that it creates."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import lakewake
import lakewake.sql
from lakewake.api import Index, Lakewake
from lakewake.errors import ConfigError, IndexMissing, SetupError, SqlError
from support import ROOT
from support.hudi.tables import HudiTables

pytestmark = pytest.mark.spark

CONFIG = """\
# The wines that we search.
[model]   # no weights needed
provider = "hashing"
dimension = 64

[[index]]
name    = "wines"
table   = "lake.wines"   # in the catalog
text    = "{description}"
payload = ["country", "price", "day", "tags", "scores"]
"""
WINES = [
    ("smoky", "A smoky red with leather and old wood.", "Italy", 30.5, ["red", "dry"]),
    ("smokier", "A smoky red with leather and old oak.", "Italy", 35.0, ["red"]),
    ("fresh", "Fresh white with citrus, for a summer evening.", "France", 12.0, []),
    ("sweet", "Sweet wine with honey. It is smoky at the end.", "Italy", None, None),
    ("odd", 'It\'s "quoted" \\ and red.', "Spain", 8.0, ["x"]),
]
COLUMNS = (
    "wine_id string, description string, country string, price double, tags array<string>, "
    "ts long, day date, scores map<string, int>"
)


@dataclass(frozen=True)
class Cellar:
    """A table of wines in the catalog, and a configuration with an index of it."""

    spark: SparkSession
    table: HudiTables
    config: Path

    def run(self, statement: str) -> DataFrame:
        return lakewake.sql.run(self.spark, statement)

    def rows(self, statement: str) -> list[Row]:
        return self.run(statement).collect()

    def index(self, name: str = "wines") -> Index:
        return lakewake.open(self.config, spark=self.spark)[name]

    def write(self, *wines: tuple[Any, ...], ts: int = 1) -> None:
        made = [(*wine, ts, None, {"taste": len(wine[0])}) for wine in wines]
        frame = self.spark.createDataFrame(made, COLUMNS)
        self.table.write_frame(frame.coalesce(1).selectExpr(*_columns(frame)))


def _columns(frame: DataFrame) -> list[str]:
    dated = "date_add(DATE '2024-01-31', CAST(price AS INT)) AS day"
    return [dated if name == "day" else name for name in frame.columns]


@pytest.fixture(scope="module")
def cellar(
    spark: SparkSession, small_tables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cellar]:
    folder = tmp_path_factory.mktemp("cellar")
    options = small_tables | {"hoodie.table.name": "wines"}
    table = HudiTables(
        spark, folder / "table", keys="wine_id", partition="country", options=options
    )
    config = folder / "lakewake.toml"
    config.write_text(CONFIG)
    made = Cellar(spark, table, config)
    made.write(*WINES)
    spark.sql("CREATE DATABASE lake")
    spark.sql(f"CREATE TABLE lake.wines USING hudi LOCATION '{table.path}'")
    spark.sql("CREATE TABLE lake.plain (id int) USING parquet")
    lakewake.sql.register(spark, config)
    made.run("REFRESH VECTOR INDEX wines")
    yield made
    spark.sql("DROP DATABASE lake CASCADE")


def expected(index: Index, *question: str, **options: Any) -> list[tuple[Any, ...]]:
    """The hits of `Index.search`, as SQL shows them."""
    result = index.search(*question, **options)
    return [
        (n, h.key, h.partition, h.score, h.text, result.instant, *_payload(h.payload))
        for n, h in enumerate(result.hits, 1)
    ]


def _payload(payload: Any) -> list[Any]:
    return [dict(v) if name == "scores" else v for name, v in payload.items()]


def ranked(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows))


SEARCHES: list[tuple[str, dict[str, Any]]] = [
    ("'smoky red', 3", {"k": 3}),
    ("'smoky red'", {"k": 10}),
    ("'smoky red', 2, \"country = 'Italy'\"", {"k": 2, "where": "country = 'Italy'"}),
    ("'smoky red', where => 'price < 31', k => 4", {"k": 4, "where": "price < 31"}),
    ("'smoky red', 5, NULL, 'hybrid'", {"k": 5, "mode": "hybrid"}),
    ("'smoky red', mode => 'keyword'", {"k": 10, "mode": "keyword"}),
    ("'smoky red', exact => true", {"k": 10, "exact": True}),
]


@pytest.mark.parametrize(("arguments", "options"), SEARCHES)
def test_a_search_in_sql_answers_like_the_index(
    cellar: Cellar, arguments: str, options: dict[str, Any]
) -> None:
    rows = cellar.rows(f"SELECT * FROM vector_search('wines', {arguments})")
    assert ranked(rows) == expected(cellar.index(), "smoky red", **options)


def test_columns_have_the_types_of_the_table(cellar: Cellar) -> None:
    found = cellar.run("SELECT * FROM vector_search('wines', 'smoky red', 3)").schema
    assert found.simpleString() == (
        "struct<_rank:int,_key:string,_partition:string,_score:double,_text:string,_instant:string,"
        "country:string,price:double,day:date,tags:array<string>,scores:map<string,int>>"
    )


def test_a_question_may_be_a_vector(cellar: Cellar) -> None:
    vector = [round(float(x), 4) for x in np.linspace(-1, 1, 64)]
    rows = cellar.rows(
        f"SELECT * FROM vector_search('wines', ARRAY({', '.join(map(str, vector))}), 3)"
    )
    assert ranked(rows) == expected(cellar.index(), vector=vector, k=3)


def test_plain_spark_sql_has_the_payload_as_a_map(cellar: Cellar) -> None:
    statement = (
        "SELECT _rank, _key, _score, payload['country'] AS country, "
        "CAST(payload['price'] AS DOUBLE) AS price, payload['day'] AS day, "
        "from_json(payload['tags'], 'array<string>') AS tags, payload "
        "FROM vector_search('wines', 'smoky red', 3) ORDER BY _rank"
    )
    rows = cellar.spark.sql(statement).collect()
    hits = cellar.index().search("smoky red", k=3).hits
    for row, hit in zip(rows, hits, strict=True):
        assert (row["_key"], row["_score"]) == (hit.key, hit.score)
        assert (row["country"], row["price"]) == (hit.payload["country"], hit.payload["price"])
        assert row["tags"] == hit.payload["tags"]
        assert row["day"] == (hit.payload["day"] and hit.payload["day"].isoformat())
        # A value that is null is not in the map.
        assert set(row["payload"]) == {k for k, v in hit.payload.items() if v is not None}


def test_all_rows_within_a_distance_are_found(cellar: Cellar) -> None:
    everything = cellar.index().search("smoky red", k=100, exact=True).hits
    for distance in (0.0, 0.4, 0.7, 2.0):
        near = [hit.key for hit in everything if hit.score >= 1 - distance]
        statement = f"SELECT * FROM vector_range('wines', 'smoky red', {distance})"
        assert [row["_key"] for row in sorted(cellar.rows(statement))] == near
        plain = sorted(cellar.spark.sql(statement).collect())
        assert [row["_key"] for row in plain] == near
    assert 0 < len(near) == len(WINES)


def test_a_range_has_filters_too(cellar: Cellar) -> None:
    rows = cellar.rows("SELECT * FROM vector_range('wines', 'red', 2, where => \"price > 10\")")
    assert {row["_key"] for row in rows} == {"smoky", "smokier", "fresh"}


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id, h._rank, h._key FROM {q} q, LATERAL vector_search('wines', q.ask, 2) h",
        "SELECT id, _rank, _key FROM {q} q JOIN LATERAL "
        "(SELECT * FROM vector_search('wines', ask, 2)) h",
        "SELECT id, _rank, _key FROM vector_search('wines', TABLE(SELECT * FROM {q}), 2)",
        "SELECT h.id, h._rank, h._key FROM vector_search('wines', TABLE({q}), k => 2, "
        "column => 'ASK') AS h",
    ],
)
def test_a_table_of_questions_is_joined_with_the_index(cellar: Cellar, statement: str) -> None:
    asked = [(1, "smoky red"), (2, "citrus"), (3, None), (4, "honey and wood")]
    cellar.spark.createDataFrame(asked, "id int, ask string").createOrReplaceTempView("asked")
    found = ranked(cellar.rows(statement.format(q="asked")))
    index = cellar.index()
    assert found == [
        (id, n, hit.key)
        for id, text in asked
        if text
        for n, hit in enumerate(index.search(text, k=2).hits, 1)
    ]


def test_plain_spark_sql_joins_questions_by_a_lateral_query(cellar: Cellar) -> None:
    rows = cellar.spark.sql(
        "SELECT q.ask, v._key FROM VALUES ('smoky red'), ('citrus') q(ask), "
        "LATERAL (SELECT * FROM vector_search('wines', q.ask, 1)) v"
    ).collect()
    best = {text: cellar.index().search(text, k=1).hits[0].key for text in ("smoky red", "citrus")}
    assert dict(map(tuple, rows)) == best


def test_searches_are_part_of_larger_statements(cellar: Cellar) -> None:
    rows = cellar.rows(
        "WITH best AS (SELECT * FROM vector_search('wines', 'smoky red', 3)) "
        "SELECT w.wine_id, b._rank, r._rank AS other FROM lake.wines w "
        "JOIN best b ON w.wine_id = b._key "
        "JOIN vector_search('wines', 'citrus', 9) r ON r._key = b._key ORDER BY b._rank"
    )
    assert [row["_rank"] for row in rows] == [1, 2, 3]
    assert all(row["other"] for row in rows)


def test_other_statements_go_to_spark(cellar: Cellar) -> None:
    assert cellar.rows("SELECT 'vector_search', 1 AS one")[0]["one"] == 1
    assert {row["tableName"] for row in cellar.rows("SHOW TABLES IN lake")} >= {"wines", "plain"}


def test_vectors_of_a_table_are_questions_too(cellar: Cellar) -> None:
    index = cellar.index()
    asked = {n: [float(x) for x in np.eye(64)[n] + 0.1] for n in range(3)}
    cellar.spark.createDataFrame(
        list(asked.items()), "id int, v array<double>"
    ).createOrReplaceTempView("vectors")
    found = cellar.rows("SELECT id, _rank, _key FROM vector_search('wines', TABLE(vectors), 2)")
    assert ranked(found) == [
        (id, n, hit.key)
        for id, vector in asked.items()
        for n, hit in enumerate(index.search(vector=vector, k=2).hits, 1)
    ]


def test_no_view_of_ours_is_left(cellar: Cellar) -> None:
    cellar.rows("SELECT * FROM vector_range('wines', 'red', 1)")
    cellar.rows("SELECT * FROM vector_search('wines', TABLE(SELECT 'red' AS ask), 1)")
    with pytest.raises(SqlError):
        cellar.run("SELECT * FROM vector_range('wines', 'red', 1), vector_search('wine', 'red')")
    views = [row["tableName"] for row in cellar.rows("SHOW TABLES")]
    assert not [name for name in views if name.startswith("lakewake")]


def test_a_question_may_come_from_another_search(cellar: Cellar) -> None:
    rows = cellar.rows(
        "SELECT found, _key FROM vector_search('wines', TABLE(SELECT _key AS found, _text AS asked "
        "FROM vector_search('wines', 'citrus', 1)), 1, column => 'asked')"
    )
    assert rows == [Row(found="fresh", _key="fresh")]


@pytest.mark.parametrize(
    "search",
    [
        "vector_search('wines', 'citrus', 1)",
        "vector_range('wines', 'citrus', 0.7)",
        "vector_search('wines', TABLE(SELECT 'citrus' AS ask), 1)",
    ],
)
def test_a_temporary_view_of_a_search_can_be_read_later(cellar: Cellar, search: str) -> None:
    cellar.run(f"CREATE OR REPLACE TEMP VIEW best AS SELECT * FROM {search}")
    assert cellar.rows("SELECT _key FROM best") == [Row(_key="fresh")]


@pytest.mark.parametrize(
    ("arguments", "at", "fact"),
    [
        ("'wine', 'x'", "'wine'", "there is no vector index 'wine'"),
        ("'wines', ' '", "' '", "the text to search for is blank"),
        ("'wines', 'x', 0", "0", "k is 0"),
        ("'wines', 'x', mode => 'magic'", "mode", "mode cannot be 'magic'"),
        ("'wines', 'x', where => 'colour = 1'", "where", "no payload column 'colour'"),
        ("'wines', 'x', 3, 'price < '", "'price < '", ""),
        ("'wines', ARRAY(1, 2)", "ARRAY", "the query vector has 2 numbers"),
        ("'wines', 'x', column => 'a'", "column", "`column` names the questions"),
        ("'wines', TABLE(SELECT 1 AS a)", "TABLE", "which column holds the questions"),
        ("'wines', TABLE(SELECT 'x' AS a), column => 'b'", "column", "has no column `b`"),
    ],
)
def test_errors_point_to_the_argument(cellar: Cellar, arguments: str, at: str, fact: str) -> None:
    statement = f"SELECT *\nFROM vector_search({arguments})"
    with pytest.raises(SqlError) as raised:
        cellar.run(statement)
    assert fact in raised.value.fact
    assert raised.value.line == 2
    assert statement.splitlines()[1][raised.value.column - 1 :].startswith(at)
    assert raised.value.hint


def test_explain_shows_mode_filter_and_cells(cellar: Cellar) -> None:
    ((plan,),) = cellar.rows(
        "EXPLAIN SELECT * FROM vector_search('wines', 'smoky red', 3, 'price < 40', 'hybrid')"
    )
    note = plan.splitlines()[1]
    assert plan.startswith("== Vector Search ==\n")
    assert "vector_search of wines: mode hybrid, k 3, filter price < 40, " in note
    assert "cells none, every vector is compared, " in note
    assert f"instant {cellar.index().status().instant}" in note
    assert "== Physical Plan ==" in plan
    many = "vector_search('tasted', TABLE(SELECT 'red' AS ask), 2)"
    cellar.run(
        "CREATE VECTOR INDEX IF NOT EXISTS tasted ON lake.wines (description) USING hudi "
        "OPTIONS ('vector.metric' = 'cosine', payload = 'country, price', recall = 0.9)"
    )
    ((plan,),) = cellar.rows(f"EXPLAIN SELECT * FROM {many}")
    assert "vector_search of tasted: mode vector, k 2, filter none, cells all 1, " in plan


def test_a_new_session_can_search_too(cellar: Cellar) -> None:
    # A Thrift server opens one for each connection.
    other = cellar.spark.newSession()
    rows = other.sql("SELECT _key FROM vector_search('wines', 'citrus', 1)").collect()
    assert rows == [Row(_key="fresh")]
    with pytest.raises(ConfigError, match="knows no vector indexes"):
        lakewake.sql.run(other, "SHOW VECTOR INDEXES")


@pytest.mark.matrix
def test_a_thrift_server_answers(cellar: Cellar) -> None:
    spark: Any = cellar.spark
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spark.conf.set("hive.server2.thrift.port", str(port))
    spark.conf.set("hive.server2.thrift.bind.host", "127.0.0.1")
    thrift = spark._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
    server = thrift.startWithContext(spark._jsparkSession.sqlContext())
    try:
        address = f"jdbc:hive2://127.0.0.1:{port}/default"
        driver = spark._jvm.org.apache.hive.jdbc.HiveDriver()
        connection = driver.connect(address, spark._jvm.java.util.Properties())
        found = connection.createStatement().executeQuery(
            "SELECT _key, payload['country'] FROM vector_search('wines', 'citrus', 1)"
        )
        assert found.next()
        assert (found.getString(1), found.getString(2)) == ("fresh", "France")
        connection.close()
    finally:
        server.stop()


def test_a_session_of_spark_connect_is_refused_in_one_line() -> None:
    class Connected:
        """What a session of Spark Connect lacks."""

    with pytest.raises(SetupError) as raised:
        lakewake.sql.register(Connected())  # type: ignore[arg-type]
    assert "Spark Connect" in raised.value.fact
    assert "\n" not in raised.value.fact


def test_a_cancelled_query_stops_its_jobs(cellar: Cellar) -> None:
    spark, failed = cellar.spark, list[BaseException]()
    context = spark.sparkContext
    # More questions than this test could wait for.
    endless = cellar.run(
        "SELECT count(_key) FROM (SELECT CAST(id AS STRING) AS ask FROM range(100000000)) q, "
        "LATERAL vector_search('wines', q.ask, 5)"
    )

    def ask() -> None:
        context.setJobGroup("asked", "a search", interruptOnCancel=True)
        try:
            endless.collect()
        except Exception as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    tracker = context.statusTracker()
    while not any(
        info and info.numActiveTasks
        for job in tracker.getJobIdsForGroup("asked")
        if (about := tracker.getJobInfo(job))
        for info in map(tracker.getStageInfo, about.stageIds)
    ):
        assert asking.is_alive()
    context.cancelJobGroup("asked")
    asking.join(60)
    assert not asking.is_alive()
    assert "cancelled" in str(failed[0])
    # The workers still answer.
    assert cellar.rows("SELECT _key FROM vector_search('wines', 'citrus', 1)")


def test_an_index_is_created_described_and_refreshed(cellar: Cellar) -> None:
    before = cellar.config.read_text()
    (made,) = cellar.rows(
        "CREATE VECTOR INDEX tried ON lake.wines (description) USING hudi "
        "OPTIONS ('vector.metric' = 'cosine', payload = 'country, price', recall = 0.9)"
    )
    # The texts are known from the other index of this configuration.
    assert (made["action"], made["rows"], made["embedded"]) == ("build", 5, 0)
    assert cellar.config.read_text().startswith(before)
    index = cellar.index("tried")
    assert index.settings.payload == ("country", "price")
    assert index.settings.store == f"hudi://{cellar.config.parent}/index/tried"
    found = dict(map(tuple, cellar.rows("DESCRIBE VECTOR INDEX tried")))
    assert found["table"] == str(cellar.table.path)
    assert (found["vector.metric"], found["rows"], found["state"]) == ("cosine", "5", "in step")
    assert found["cells"] == "1"
    question = "SELECT * FROM vector_search('tried', 'smoky red', 3)"
    assert ranked(cellar.rows(question)) == expected(index, "smoky red", k=3)
    # Plain SQL knows the new index too.
    plain = cellar.spark.sql("SELECT _key FROM vector_search('tried', 'citrus', 1)").collect()
    assert plain == [Row(_key="fresh")]
    (again,) = cellar.rows(
        "CREATE VECTOR INDEX IF NOT EXISTS tried ON lake.wines (description) USING lance"
    )
    assert (again["action"], again["rows"]) == ("nothing", 5)

    cellar.write(("new", "A new wine that tastes of iron.", "Chile", 3.0, None), ts=2)
    states = {row["index"]: row["state"] for row in cellar.rows("SHOW VECTOR INDEXES")}
    assert states["tried"] == "1 commits behind"
    (done,) = cellar.rows("REFRESH VECTOR INDEX tried")
    assert (done["action"], done["rows_changed"], done["embedded"]) == ("follow", 1, 1)
    rows = cellar.rows("SELECT _key FROM vector_search('tried', 'tastes of iron', 1)")
    assert rows == [Row(_key="new")]


def test_a_dropped_index_is_gone_from_the_store_and_the_configuration(cellar: Cellar) -> None:
    before = cellar.config.read_text()
    for store in ("lance", "hudi"):
        cellar.run(f"CREATE VECTOR INDEX gone ON lake.wines (description) USING {store}")
        address = cellar.index("gone").describe().address
        assert lakewake.open_index(address).search("citrus").hits
        (dropped,) = cellar.rows("DROP VECTOR INDEX gone")
        assert dropped["index"] == "gone"
        assert dropped["removed"]
        # The other index of this configuration still uses the vectors.
        assert "wines" in dropped["shared_with"]
        assert cellar.config.read_text().rstrip() == before.rstrip()
        with pytest.raises(IndexMissing):
            lakewake.open_index(address)
        with pytest.raises(SqlError, match="there is no vector index 'gone'"):
            cellar.run("DROP VECTOR INDEX gone")
        assert cellar.rows("DROP VECTOR INDEX IF EXISTS gone") == []
    assert cellar.rows("SELECT _key FROM vector_search('wines', 'citrus', 1)")


def test_an_index_without_a_configuration_describes_itself(cellar: Cellar, tmp_path: Path) -> None:
    spark = cellar.spark
    lakewake.sql.register(spark)
    try:
        with pytest.raises(SqlError, match="needs a location"):
            cellar.run(f"CREATE VECTOR INDEX own ON '{cellar.table.path}' (description)")
        (made,) = cellar.rows(
            f"CREATE VECTOR INDEX own ON '{cellar.table.path}' (description) USING lance OPTIONS "
            f"(location = '{tmp_path}', model.provider = 'hashing', model.dimension = 16)"
        )
        address = made["address"]
        assert address == f"lance://{tmp_path}/own"
        named = cellar.rows("SELECT _key FROM vector_search('own', 'citrus', 1)")
        # Another session knows nothing but the address.
        lakewake.sql.register(spark)
        assert cellar.rows("SHOW VECTOR INDEXES") == []
        (listed,) = cellar.rows(f"SHOW VECTOR INDEXES IN '{tmp_path}'")
        assert (listed["index"], listed["state"]) == ("own", "in step")
        by_address = f"SELECT _key FROM vector_search('{address}', 'citrus', 1)"
        assert cellar.rows(by_address) == spark.sql(by_address).collect() == named
        cellar.write(("late", "A late wine, of iron too.", "Chile", 4.0, None), ts=3)
        (done,) = cellar.rows(f"REFRESH VECTOR INDEX '{address}'")
        assert (done["action"], done["embedded"]) == ("follow", 1)
        cellar.run(f"DROP VECTOR INDEX '{address}'")
        assert cellar.rows(f"SHOW VECTOR INDEXES IN '{tmp_path}'") == []
        assert cellar.rows(f"DROP VECTOR INDEX IF EXISTS '{address}'") == []
    finally:
        lakewake.sql.register(spark, cellar.config)


def test_an_opened_configuration_is_searched_and_not_written(cellar: Cellar) -> None:
    before = cellar.config.read_text()
    opened = lakewake.open(cellar.config, spark=cellar.spark)
    assert isinstance(opened, Lakewake)
    lakewake.sql.register(cellar.spark, opened)
    try:
        assert cellar.rows("SELECT _key FROM vector_search('wines', 'citrus', 1)")
        cellar.run(
            "CREATE VECTOR INDEX mine ON lake.wines (description) OPTIONS "
            f"(location = '{cellar.config.parent}/mine', model.provider = 'hashing', "
            "model.dimension = 16)"
        )
        assert cellar.rows("SELECT _key FROM vector_search('mine', 'citrus', 1)")
        assert cellar.config.read_text() == before
    finally:
        lakewake.sql.register(cellar.spark, cellar.config)


@pytest.mark.parametrize(
    ("statement", "at", "fact"),
    [
        ("CREATE VECTOR INDEX wines ON lake.wines (description)", "wines ", "exists already"),
        ("CREATE VECTOR INDEX n ON lake.nothing (a)", "lake.nothing", "has no table lake.nothing"),
        ("CREATE VECTOR INDEX n ON lake.plain (id)", "lake.plain", "is not a Hudi table"),
        ("CREATE VECTOR INDEX n ON lake.wines (colour)", "colour", "has no column `colour`"),
        ("CREATE VECTOR INDEX n ON '/no/table' (a)", "'/no", "there is no table at"),
        (
            "CREATE VECTOR INDEX n ON lake.wines (description) OPTIONS (recall = 7)",
            "recall",
            "`recall` is 7",
        ),
        ("REFRESH VECTOR INDEX wine", "wine", "there is no vector index 'wine'"),
        ("DESCRIBE VECTOR INDEX wine", "wine", "there is no vector index 'wine'"),
    ],
)
def test_what_cannot_be_managed_is_refused_with_its_place(
    cellar: Cellar, statement: str, at: str, fact: str
) -> None:
    before = cellar.config.read_text()
    with pytest.raises(SqlError) as raised:
        cellar.run(statement)
    assert fact in raised.value.fact
    assert statement[raised.value.column - 1 :].startswith(at)
    assert cellar.config.read_text() == before


DOCS = ROOT / "docs" / "sql.md"
SHOWN = re.compile(r"<!-- (\w+) -->\n```sql\n(.*?)\n```\n\n```text\n(.*?)```", re.DOTALL)
REVIEWS = [
    ("w1", "A smoky red with leather and old wood.", "Rocca", "Italy", 30.0),
    ("w2", "A smoky red, long and dry.", "Alta", "Italy", 35.0),
    ("w3", "Fresh white with citrus, for a summer evening.", "Brise", "France", 12.0),
    ("w4", "Sweet wine with honey. It is smoky at the end.", "Rocca", "Italy", 22.0),
]


def drawn(columns: list[str], rows: list[Row]) -> str:
    """A table as `DataFrame.show` draws it, whatever the length of a path in it."""
    lines = [columns, *([_placed(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = f"+{'+'.join('-' * width for width in widths)}+"
    cells = [[c.rjust(w) for c, w in zip(line, widths, strict=True)] for line in lines]
    head, *body = (f"|{'|'.join(line)}|" for line in cells)
    return "\n".join([rule, head, rule, *body, rule, ""])


def _placed(value: object) -> str:
    return str(value).replace(str(Path.cwd()), "/lake")


def shown(kind: str, statement: str, spark: SparkSession) -> str:
    """What a session prints for a statement of the documentation."""
    if kind == "error":
        with pytest.raises(SqlError) as raised:
            lakewake.sql.run(spark, statement)
        return f"{raised.value}\n"
    frame = spark.sql(statement) if kind == "plain" else lakewake.sql.run(spark, statement)
    if kind == "explain":
        plan = str(frame.collect()[0][0])
        return plan.partition("== Physical Plan ==")[0].rstrip() + "\n"
    return drawn(frame.columns, frame.collect())


def test_the_documentation_shows_what_a_session_prints(
    cellar: Cellar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, page = cellar.spark, DOCS.read_text()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakewake.toml").write_text('[model]\nprovider = "hashing"\ndimension = 384\n')
    columns = "wine_id string, description string, winery string, country string, price double"
    table = HudiTables(
        spark, tmp_path / "wine_reviews", keys="wine_id", options=cellar.table.options
    )
    table.write_frame(
        spark.createDataFrame(REVIEWS, columns).selectExpr("*", "country AS part", "1L AS ts")
    )
    spark.sql("CREATE DATABASE shop")
    spark.sql(f"CREATE TABLE shop.wine_reviews USING hudi LOCATION '{table.path}'")
    questions = [(1, "smoky and dry"), (2, "citrus in summer")]
    spark.createDataFrame(questions, "id int, question string").createOrReplaceTempView("questions")
    try:
        (first, *_) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        exec(compile(first, "sql.md", "exec"), {"spark": spark})
        assert len(SHOWN.findall(page)) == page.count("```text")
        for kind, statement, output in SHOWN.findall(page):
            found = shown(kind, statement, spark)
            assert re.sub(r"\d{17}", "20260101120000000", found) == output
    finally:
        spark.sql("DROP DATABASE shop CASCADE")
        lakewake.sql.register(spark, cellar.config)
