"""Files into real Hudi tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakewake.errors import ConfigError, LakewakeError, TableError
from lakewake.ingest import IngestReport, IngestRequest, ingest
from lakewake.source.look import look_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WINES = """id,country,points,price,note,ts
w0,Italy,87,,"fruit
and ""broom""\",1
w1,US,88,15.0,ripe,1
w2,US
,US,80,1.0,no key,1
w1,US,89,15.5,riper,2
w3,Chile,91,12.5,fresh,1
"""


@dataclass
class Lake:
    """A folder for one table and the files that go into it."""

    spark: SparkSession
    folder: Path
    options: dict[str, str]

    @property
    def table(self) -> Path:
        return self.folder / "wines"

    def ingest(self, name: str, content: str, **request: object) -> IngestReport:
        file = self.folder / name
        file.write_text(content)
        return self.ingest_file(file, **request)

    def ingest_file(self, file: Path, **request: object) -> IngestReport:
        options = {**self.options, **request.pop("options", {})}  # type: ignore[dict-item]
        made = IngestRequest(str(file), str(self.table), options=options, **request)  # type: ignore[arg-type]
        return ingest(self.spark, made)

    def create(self, **more: object) -> IngestReport:
        given = {"key": ("id",), "ordering": "ts", "partition": ("country",), **more}
        return self.ingest("wines.csv", WINES, **given)

    def refused(self, name: str, content: str, **request: object) -> LakewakeError:
        before = self.commits
        with pytest.raises(LakewakeError) as caught:
            self.ingest(name, content, **request)
        assert self.commits == before
        return caught.value

    @property
    def commits(self) -> int:
        return len(look_at(str(self.table)).completed) if self.table.exists() else 0

    def rows(self, *columns: str) -> list[tuple]:
        frame = self.spark.read.format("hudi").load(str(self.table))
        return sorted(map(tuple, frame.select(*columns).collect()))


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, small_tables: dict[str, str]) -> Lake:
    return Lake(spark, tmp_path, small_tables)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_table_is_created_changed_and_emptied_by_files(lake: Lake, kind: str):
    made = lake.create(table_type=kind)
    assert made.created
    assert (made.read, made.bad, made.duplicates, made.written) == (6, 2, 1, 3)
    assert [(b.line, b.reason) for b in made.bad_lines] == [
        (5, "2 fields, expected 6"),
        (6, "id is empty"),
    ]
    look = look_at(str(lake.table))
    assert look.newest == made.instant
    assert look.properties["hoodie.datasource.write.hive_style_partitioning"] == "true"
    assert lake.rows("id", "points", "price", "note", "_hoodie_partition_path") == [
        ("w0", 87, None, 'fruit\nand "broom"', "country=Italy"),
        ("w1", 89, 15.5, "riper", "country=US"),
        ("w3", 91, 12.5, "fresh", "country=Chile"),
    ]

    changed = lake.ingest(
        "new.jsonl",
        '{"id": "w1", "country": "US", "points": 99, "ts": 3}\n'
        '{"id": "w3", "country": "Chile", "points": "many", "ts": 3}\n'
        '{"id": "w4", "country": "Chile", "points": 80, "ts": 3}\n',
    )
    assert not changed.created
    assert (changed.inserted, changed.updated, changed.bad) == (1, 1, 1)
    assert changed.bad_lines[0].reason == "points: 'many' is not int64"

    gone = lake.ingest("gone.csv", "id,country\nw0,Italy\nnobody,Italy\n", operation="delete")
    assert (gone.read, gone.deleted, gone.written) == (2, 1, 1)
    assert lake.rows("id", "points") == [("w1", 99), ("w3", 91), ("w4", 80)]
    assert lake.commits == 3


def test_an_older_row_does_not_replace_a_newer_one(lake: Lake):
    lake.create()
    lake.ingest("old.jsonl", '{"id": "w1", "country": "US", "points": 1, "ts": 0}\n')
    assert ("w1", 89) in lake.rows("id", "points")


def test_inserting_keeps_both_of_two_rows_with_one_key(lake: Lake):
    report = lake.create(operation="bulk_insert")
    assert (report.duplicates, report.inserted) == (1, 4)
    assert [key for (key,) in lake.rows("id")] == ["w0", "w1", "w1", "w3"]


def test_insert_overwrite_replaces_the_partitions_that_the_file_has(lake: Lake):
    lake.create()
    line = "id,country,points,price,note,ts\nw9,US,1,1.0,only,1\n"
    report = lake.ingest("us.csv", line, operation="insert_overwrite")
    assert report.inserted == 1
    assert [key for (key,) in lake.rows("id")] == ["w0", "w3", "w9"]


def test_a_table_with_two_keys_and_no_partition_is_written(lake: Lake):
    given = {"key": ("id", "sub"), "ordering": "ts"}
    lake.ingest("a.csv", "id,sub,t,ts\n1,a,x,1\n1,b,y,1\n", **given)
    report = lake.ingest("b.csv", "id,sub,t,ts\n1,b,z,2\n")
    assert (report.inserted, report.updated) == (0, 1)
    assert lake.rows("id", "sub", "t") == [(1, "a", "x"), (1, "b", "z")]
    assert lake.ingest("c.csv", "id,sub\n1,a\n", operation="delete").deleted == 1
    assert lake.rows("id", "sub") == [(1, "b")]


def test_an_existing_table_decides_the_types_and_takes_new_columns(lake: Lake):
    lake.create()
    report = lake.ingest("new.csv", "id,country,points,price,note,ts,stars\n7,US,1,2,3,4,5\n")
    assert report.new_columns == ("stars",)
    assert ("7", 1, 2.0, "3", 5) in lake.rows("id", "points", "price", "note", "stars")


def test_vectors_and_times_in_parquet_are_ingested(lake: Lake):
    table = pa.table(
        {
            "id": ["a", "b"],
            "at": pa.array([1_000, 2_000], pa.timestamp("ns")),
            "v": pa.array([[1.0, 2.0], None], pa.list_(pa.float32())),
        }
    )
    file = lake.folder / "rows.parquet"
    pq.write_table(table, file)
    report = lake.ingest_file(file, key=("id",), ordering="at")
    assert (report.read, report.inserted) == (2, 2)
    assert lake.rows("id", "v") == [("a", [1.0, 2.0]), ("b", None)]


def test_strict_writes_nothing_when_a_line_is_bad(lake: Lake):
    bad = lake.folder / "bad.jsonl"
    error = lake.refused("wines.csv", WINES, key=("id",), strict=True, bad_file=bad)
    assert "2 bad lines" in error.fact
    assert "line 5: 2 fields, expected 6" in error.fact
    assert not lake.table.exists()
    assert [json.loads(line)["line"] for line in bad.read_text().splitlines()] == [5, 6]


def test_a_file_without_a_usable_row_writes_nothing(lake: Lake):
    report = lake.ingest("wines.csv", "id,t\n,a\n", key=("id",))
    assert (report.read, report.bad, report.written, report.instant) == (1, 1, 0, "")
    assert not report.created
    assert not lake.table.exists()


def test_equal_keys_without_an_ordering_field_are_refused(lake: Lake):
    error = lake.refused("a.csv", "id,t\n1,a\n1,b\n", key=("id",))
    assert "1 row with the key of another row" in error.fact
    assert not lake.table.exists()


@pytest.mark.parametrize(
    ("claim", "fact"),
    [
        ({"key": ("points",)}, "has key id, not points"),
        ({"ordering": "points"}, "has ordering ts, not points"),
        ({"partition": ("id",)}, "has partition country, not id"),
        ({"table_type": "mor"}, "has type cow, not mor"),
        ({"name": "beers"}, "has name wines, not beers"),
    ],
)
def test_a_request_that_contradicts_an_existing_table_is_refused(
    lake: Lake, claim: dict, fact: str
):
    shape = {
        "hoodie.table.name": "wines",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.table.partition.fields": "country",
    }
    (lake.table / ".hoodie").mkdir(parents=True)
    lines = "\n".join(f"{k}={v}" for k, v in shape.items())
    (lake.table / ".hoodie/hoodie.properties").write_text(lines)
    (lake.folder / "a.csv").write_text(WINES)
    with pytest.raises(ConfigError) as caught:
        lake.ingest_file(lake.folder / "a.csv", **claim)
    assert fact in caught.value.fact


@pytest.mark.parametrize(
    ("content", "request_", "fact"),
    [
        ("id,t\n1,a\n", {}, "no key to create it with"),
        ("id,t\n1,a\n", {"key": ("wine",)}, "no column wine"),
        ("id,t\n1,a\n", {"key": ("id",), "ordering": "ts"}, "no column ts"),
        ("id,t\n1,a\n", {"key": ("id",), "partition": ("p",)}, "no column p"),
        ("id,t\n1,a\n", {"key": ("id",), "operation": "delete"}, "no table"),
        ("id,t\n1,a\n", {"key": ("id",), "operation": "merge"}, "--operation is 'merge'"),
        ("id,t\n1,a\n", {"key": ("id",), "table_type": "x"}, "--type is 'x'"),
        ("id,t\n1,a\n", {"key": ("id",), "format": "xml"}, "--format is 'xml'"),
        ("id,unit price\n1,a\n", {"key": ("id",)}, "cannot store columns called 'unit price'"),
    ],
)
def test_a_request_that_cannot_be_met_writes_nothing(
    lake: Lake, content: str, request_: dict, fact: str
):
    assert fact in lake.refused("a.csv", content, **request_).fact
    assert not lake.table.exists()


def test_a_folder_with_other_files_is_left_alone(lake: Lake):
    (lake.table / "others").mkdir(parents=True)
    with pytest.raises(TableError, match="holds something other than a Hudi table"):
        lake.create()
    assert [p.name for p in lake.table.iterdir()] == ["others"]


def test_a_write_that_hudi_refuses_is_an_error_with_the_reason_and_lands_nothing(lake: Lake):
    lake.create()
    error = lake.refused(
        "wines.csv", WINES, options={"hoodie.datasource.write.keygenerator.class": "no.such.Class"}
    )
    assert isinstance(error, TableError)
    assert error.landed == "nothing was committed"
    assert "no.such.Class" in error.fact


def test_hudis_default_settings_work(spark: SparkSession, tmp_path: Path):
    report = Lake(spark, tmp_path, {}).create()
    assert (report.inserted, report.instant) == (3, look_at(report.table).newest)
