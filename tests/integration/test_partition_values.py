"""Partition columns in text and payload: the index holds what Hudi's snapshot shows."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from lakewake.model.plan import Action
from lakewake.model.recipe import TextField
from lakewake.source import partitions
from lakewake.source.view import hudi_reader
from lakewake.sync import SyncOptions, sync
from support.hudi.tables import HudiTables, row
from support.oracle import built_from_nothing, following, indexed

pytestmark = pytest.mark.spark

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
WRITE = "hoodie.datasource.write."
ODD = [
    "100%25",
    "50%20off",
    "a%3Db",
    "x=y",
    "a/b",
    "",
    None,
    "%",
    "007",
    "ä b",
    "part=q",
    "[x]",
    "{a,b}",
]
PARTED = (TextField("text", "{txt} in {part}"),)


def _follows(table, parts, changes) -> None:
    """Check after each change that the index equals a build and a reconcile finds nothing."""
    for change in changes:
        change()
        report = sync(parts)
        assert report.action is Action.FOLLOW, report.why
        assert indexed(parts) == built_from_nothing(parts)
    parts.embedder.received.clear()
    assert sync(parts, SyncOptions(reconcile=True)).chunks_upserted == 0
    assert parts.embedder.received == []


@pytest.mark.parametrize(
    ("type_", "hive", "encoded"),
    [
        (COW, "true", "false"),
        (COW, "false", "false"),
        (COW, "false", "true"),
        (MOR, "true", "true"),
        (MOR, "false", "false"),
    ],
)
def test_odd_partition_values_are_followed_as_hudi_shows_them(
    type_, hive, encoded, spark, small_tables, tmp_path
):
    options = {
        **small_tables,
        f"{WRITE}hive_style_partitioning": hive,
        f"{WRITE}partitionpath.urlencode": encoded,
    }
    odd = [p for p in ODD if (hive, encoded) != ("false", "false") or p != "part=q"]
    odd += ["__HIVE_DEFAULT_PARTITION__"] if encoded == "false" else []
    table = HudiTables(spark, tmp_path / "table", type_, options=options)
    # Not `a`: without its metadata table Hudi does not find `a/b` below another partition.
    table.write([row("k0", part="z")])
    parts = following(spark, table.path, tmp_path / "index", payload=("part",), fields=PARTED)
    sync(parts)
    rows = [row(f"k{n}", part=part) for n, part in enumerate(odd, 1)]
    newer = [row(key, "changed", part=part, ts=2) for key, _, part, *_ in rows[::2]]
    _follows(
        table,
        parts,
        [
            lambda: table.write(rows),
            lambda: table.write(newer),
            lambda: table.write(rows[:3], "delete"),
        ],
    )
    shown = {r["id"]: r["part"] for r in hudi_reader(spark).load(str(table.path)).collect()}
    assert {c["_key"]: c["part"] for c, _ in indexed(parts).values()} == shown


COLUMNS = (
    "id string, ts long, txt string, part string, n int, l long, b boolean, d date, at timestamp, "
    "dec decimal(6,2), x double"
)
KEYGEN = f"{WRITE}keygenerator.class"
COMPLEX = {KEYGEN: "org.apache.hudi.keygen.ComplexKeyGenerator"}
TIMED = {
    KEYGEN: "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
    "hoodie.keygen.timebased.timezone": "GMT",
}
DAYS = {
    **TIMED,
    "hoodie.keygen.timebased.timestamp.type": "SCALAR",
    "hoodie.keygen.timebased.timestamp.scalar.time.unit": "DAYS",
}
CUSTOM = {
    KEYGEN: "org.apache.hudi.keygen.CustomKeyGenerator",
    f"{WRITE}hive_style_partitioning": "false",
}
#: The partition columns, those of them in the index, and write options.
KINDS = {
    "numbers, booleans and dates": ("n,l,b,d,dec", ("n", "l", "b", "d", "dec"), COMPLEX),
    "a timestamp, which is shown as null": ("at", ("at",), {}),
    "a number formatted as a day": ("l", ("l",), TIMED),
    "a timestamp formatted as a day": ("at", ("at",), TIMED),
    "a date formatted as a day": ("d", ("d",), DAYS),
    "a decimal formatted as a day": ("dec", ("dec",), TIMED),
    "a double formatted as a day": ("x", ("x",), TIMED),
    "a custom key generator": ("part:SIMPLE,n:SIMPLE", ("part", "n"), CUSTOM),
    "the ordering field": ("ts", ("ts",), {}),
}


def _typed(key: str, n: int, txt: str = "text", ts: int = 1) -> tuple:
    day = datetime.date(2024, 1, n + 1)
    at = datetime.datetime(2024, 1, 5, 3, 4, n)
    parts = ("50%20off", "x=y", "c", None)
    dec = Decimal(n) / 4
    return (
        key,
        ts,
        f"{txt} of {key}",
        parts[n % 4],
        n,
        n * 10**8,
        bool(n % 2),
        day,
        at,
        dec,
        n / 8,
    )


def _write(table: HudiTables, *rows: tuple, operation: str = "upsert") -> None:
    table.write_frame(table.spark.createDataFrame(list(rows), COLUMNS).coalesce(1), operation)


@pytest.mark.parametrize(
    ("type_", "kind"),
    [*((COW, kind) for kind in KINDS), *((MOR, kind) for kind in list(KINDS)[1:5])],
)
def test_partition_columns_of_every_kind_are_followed(kind, type_, spark, small_tables, tmp_path):
    partition, columns, options = KINDS[kind]
    table = HudiTables(
        spark,
        tmp_path / "table",
        type_,
        partition=partition,
        options={**small_tables, **options},
    )
    _write(table, *(_typed(f"k{n}", n) for n in range(4)))
    fields = (TextField("text", "{txt} " + " ".join(f"{{{c}}}" for c in columns)),)
    parts = following(spark, table.path, tmp_path / "index", payload=columns, fields=fields)
    sync(parts)
    ordered = partition == "ts"
    _follows(
        table,
        parts,
        [
            lambda: _write(
                table, _typed("k0", 0, "new", 1 if ordered else 2), _typed("k9", 9, ts=3)
            ),
            lambda: _write(table, _typed("k1", 1), operation="delete"),
        ],
    )


def test_a_timestamp_that_maintenance_shows_differently_is_followed(spark, small_tables, tmp_path):
    """Hudi shows it as microseconds while its row is in a log file."""
    table = HudiTables(
        spark, tmp_path / "table", MOR, partition="at", options={**small_tables, **TIMED}
    )
    _write(table, *(_typed(f"k{n}", n % 2) for n in range(6)))
    parts = following(spark, table.path, tmp_path / "index", payload=("at",))
    sync(parts)
    _follows(
        table,
        parts,
        [
            lambda: _write(table, _typed("k0", 0, "new", 2)),
            table.compact,
            lambda: (_write(table, _typed("k1", 1, "new", 2)), table.compact()),
            lambda: _write(table, _typed("k2", 0, "new", 3)),
            table.cluster,
        ],
    )


@pytest.mark.parametrize("looked_up", [partitions.LOOKED_UP, 0], ids=["few", "very many"])
def test_a_table_whose_files_lack_the_partition_columns_is_followed(
    looked_up, spark, small_tables, tmp_path, monkeypatch
):
    monkeypatch.setattr(partitions, "LOOKED_UP", looked_up)
    options = {**small_tables, f"{WRITE}drop.partition.columns": "true"}
    table = HudiTables(spark, tmp_path / "table", partition="part", options=options)
    rows = [_typed(f"k{n}", n) for n in range(3)]
    _write(table, *rows)
    parts = following(spark, table.path, tmp_path / "index", payload=("part", "n"), fields=PARTED)
    sync(parts)
    _follows(
        table,
        parts,
        [
            lambda: _write(table, _typed("k0", 0, "changed", 2), _typed("k9", 9)),
            lambda: _write(table, rows[1], operation="delete"),
            lambda: _write(table, _typed("k5", 5)),
        ],
    )
    assert {c["part"] for c, _ in indexed(parts).values()} == {"50 off", "c", "x=y"}
