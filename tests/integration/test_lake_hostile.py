"""What is written to an index in the lake does not depend on the settings of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakewake.source.memory import MemoryTable
from lakewake.store.hudi import upkeep
from lakewake.store.hudi.store import HudiStore
from lakewake.sync import sync
from lakewake.verify import verify
from support.hudi.hostile import (
    HOSTILE_TO_HADOOP,
    HOSTILE_TO_HUDI,
    HOSTILE_TO_SPARK,
    HOSTILE_TO_WRITES,
    state_of,
)
from support.oracle import built_from_nothing, indexed
from support.sampling import SCHEMA, SampleParts, rid, sample_parts, sample_recipe, values

pytestmark = pytest.mark.spark

#: Characters that are patterns, escapes or quotes somewhere on the way.
NAME = "a [b] {c,d} e*f? it's back\\slash #%41 ü"


@pytest.fixture
def hostile(spark: SparkSession) -> Iterator[SparkSession]:
    """A caller's session with hostile settings, and hostile defaults of Hudi and Hadoop."""
    session = spark.newSession()
    for key, value in HOSTILE_TO_SPARK.items():
        session.conf.set(key, value)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    for key, value in HOSTILE_TO_HADOOP.items():
        hadoop.set(key, value)
    jvm = spark._jvm
    assert jvm is not None
    defaults = jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration
    for key, value in {**HOSTILE_TO_HUDI, **HOSTILE_TO_WRITES}.items():
        defaults.addToGlobalProps(key, value)
    yield session
    defaults.clearGlobalProps()
    for key in HOSTILE_TO_HADOOP:
        hadoop.unset(key)


def parts_in(folder: Path, session: SparkSession) -> SampleParts:
    """The index of a table with thirty rows, not built yet."""
    table = MemoryTable(sample_recipe(), SCHEMA)
    table.upsert({rid(f"k{n}"): values(f"text number {n}", n) for n in range(30)})
    store = HudiStore(str(folder), "sample", lambda: session, cell_chunks=10)
    return sample_parts(table, store)


def test_an_index_is_followed_in_a_session_with_hostile_settings(
    hostile: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LOGS", 2)
    parts, before = parts_in(tmp_path / NAME, hostile), state_of(hostile)
    sync(parts)
    for n in range(3):
        changed = {rid(f"k{n}"): values(f"changed {n}", n), rid(f"n{n}"): values("new", n)}
        parts.table.upsert(changed)
        parts.table.delete([rid(f"k{29 - n}")])
        sync(parts)
        assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees
    assert list((tmp_path / NAME).glob("g1-*/.hoodie/timeline/*.commit"))[1:], "not compacted"
    assert state_of(hostile) == before
