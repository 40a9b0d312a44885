"""Hudi's VECTOR columns: followed commit by commit, and decoded exactly as Hudi shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import lance
import numpy as np
import pytest

import lakewake
from lakewake.config.init import draft_config
from lakewake.errors import HistoryLost, TableError
from lakewake.model.plan import Action
from lakewake.model.query import Query
from lakewake.source import vectors as decoding
from lakewake.source.look import look_at
from lakewake.source.view import hudi_reader
from lakewake.store import StoreReader
from lakewake.sync import IndexParts, SyncOptions, sync
from lakewake.sync.scan import scanned
from lakewake.verify import repair, verify
from support.hudi.tables import HudiTables
from support.oracle import build, contents, following_vectors

pytestmark = pytest.mark.spark

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
DIMENSION = 3
COLUMNS = "id string, part string, ts long, num int, vec array<double>"
#: Column types, each with values that need its whole range.
TYPES = {
    "VECTOR(3)": [0.1, -3.4e18, 1e-45],
    "VECTOR(3, DOUBLE)": [0.1, -1 / 3, 1e-300],
    "VECTOR(3, INT8)": [127, -128, 0],
}
#: As with `--no-reconcile` on the command line.
FOLLOWED = SyncOptions(reconcile=False)


def vector_row(
    key: str, vector: Sequence[float] | None, *, part: str = "a", ts: int = 1
) -> tuple[object, ...]:
    """One row of the table."""
    return (key, part, ts, ts, vector and [float(x) for x in vector])


@dataclass
class Vectors:
    """A table with a VECTOR column, and an index of it."""

    table: HudiTables
    parts: IndexParts

    def write(self, *rows: tuple, operation: str = "upsert", more: str = "") -> None:
        """One commit."""
        frame = self.table.spark.createDataFrame(list(rows), COLUMNS + more)
        self.table.write_frame(frame.coalesce(1), operation)

    def begin(self) -> None:
        """Seven rows in two partitions, one of them without a vector; the index is built."""
        rows = [vector_row(f"k{n}", [n, 1, -n], part="ab"[n % 2]) for n in range(6)]
        self.write(*rows, vector_row("none", None))
        assert sync(self.parts).action is Action.BUILD

    def followed(self, changed: int, deleted: int = 0) -> None:
        """Check that a sync follows, does exactly this, and gives the index of a build."""
        report = sync(self.parts, FOLLOWED)
        assert report.action is Action.FOLLOW
        assert (report.rows_changed, report.rows_deleted, report.embedded) == (changed, deleted, 0)
        self.agrees()
        assert sync(self.parts).action is Action.NOTHING

    def agrees(self) -> None:
        """Check the index against a build, Hudi's own reader, and verify."""
        index, built = self.parts.store.open(), build(self.parts)
        assert index is not None
        assert contents(index) == contents(built)
        query = Query(np.array([1, -2, 3], np.float32), 10, exact=True)
        assert index.search(query)["_id"].to_pylist() == built.search(query)["_id"].to_pylist()
        assert self.held() == self.shown()
        assert shown_by(scanned(self.parts, spark=False)) == shown_by(index)
        assert verify(self.parts).agrees

    def held(self) -> dict[str, bytes]:
        """The vectors in the index, by key."""
        index = self.parts.store.open()
        assert index is not None
        return {
            key: np.array(vector, np.float32).tobytes()
            for batch in index.scan(["_key", "_vector"])
            for key, vector in zip(
                batch["_key"].to_pylist(), batch["_vector"].to_pylist(), strict=True
            )
        }

    def shown(self) -> dict[str, bytes]:
        """The vectors that Hudi's reader shows, by key."""
        rows = hudi_reader(self.table.spark).load(str(self.table.path)).select("id", "vec")
        return {r[0]: np.array(r[1], np.float32).tobytes() for r in rows.collect() if r[1]}


def shown_by(index: StoreReader) -> dict[str, tuple[object, ...]]:
    """What hits of an index show, by id."""
    columns = ["_id", "_partition", "_key", "_vector", "id", "num"]
    rows = (row for batch in index.scan(columns) for row in batch.to_pylist())
    return {row["_id"]: tuple(row.values()) for row in rows}


@pytest.fixture(params=[COW, MOR])
def type_(request) -> str:
    return request.param


@pytest.fixture
def made(request, type_, spark, small_tables, tmp_path) -> Vectors:
    """A table of vectors of the given type, and its index."""
    vectors = {"vec": getattr(request, "param", "VECTOR(3)")}
    return begun(
        HudiTables(spark, tmp_path / "table", type_, options=small_tables, vectors=vectors)
    )


def begun(table: HudiTables) -> Vectors:
    """The table with its first rows, and its index beside it."""
    folder = table.path.with_name("index")
    parts = following_vectors(
        table.spark, table.path, folder, "vec", DIMENSION, payload=("id", "num")
    )
    made = Vectors(table, parts)
    made.begin()
    return made


@pytest.mark.parametrize("made", TYPES, indirect=True)
def test_vectors_of_every_element_type_are_followed_exactly(made):
    exact = TYPES[made.table.vectors["vec"]]
    made.write(vector_row("k0", exact, ts=2), vector_row("new", exact, part="c"))
    made.followed(2)
    assert made.held()["k0"] == np.array(exact, np.float32).tobytes()


def test_vectors_are_followed_on_hudis_default_settings(type_, spark, tmp_path):
    vectors = {"vec": "VECTOR(3)"}
    made = begun(HudiTables(spark, tmp_path / "table", type_, vectors=vectors))
    made.write(vector_row("k0", [1, 2, 3], ts=2), vector_row("none", [3, 2, 1], ts=2))
    made.write(vector_row("k2", None, ts=9), operation="delete")
    made.followed(2, 1)


def test_a_vector_that_becomes_null_or_is_filled_is_followed(made):
    made.write(vector_row("none", [1, 2, 3], ts=2), vector_row("k1", None, part="b", ts=2))
    made.followed(2)
    made.write(vector_row("also none", None, part="c"))
    made.followed(0)
    made.write(
        vector_row("k0", [0, 1, 0], ts=2), vector_row("also none", [3, 2, 1], part="c", ts=2)
    )
    made.followed(2)


def test_deletes_and_overwrites_of_vectors_are_followed(made):
    made.write(vector_row("k0", None, ts=9), operation="delete")
    made.followed(0, 1)
    made.write(
        vector_row("k2", [7, 7, 7], ts=9), vector_row("o", [5, 5, 5]), operation="insert_overwrite"
    )
    made.followed(2, 1)
    made.write(
        vector_row("b1", [6, 6, 6]), vector_row("b2", None, part="z"), operation="bulk_insert"
    )
    made.followed(1)


def test_clustering_and_compaction_of_vectors_are_followed(made, type_):
    made.table.cluster()
    made.followed(0)
    made.write(vector_row("k0", [9, 8, 7], ts=2))
    made.table.cluster()
    made.write(vector_row("k2", [8, 8, 7], ts=2))
    made.followed(2)
    if type_ == MOR:
        made.write(vector_row("k4", [6, 5, 4], ts=2))
        made.table.compact()
        made.followed(1)
    made.write(vector_row("k1", [1, 0, 1], part="b", ts=3))
    made.followed(1)


def test_a_new_column_beside_the_vectors_is_followed(made):
    new = [vector_row("k0", [4, 4, 4], ts=2), vector_row("new", [2, 2, 2])]
    made.write(*((*row, "red") for row in new), more=", color string")
    made.followed(2)
    made.write((*vector_row("k3", [3, 2, 3], part="b", ts=2), None), more=", color string")
    made.followed(1)


def test_a_vector_of_another_dimension_never_gets_into_the_table(made):
    with pytest.raises(Exception, match="Failed to upsert"):
        made.write(vector_row("k0", [1, 2], ts=2))
    made.write(vector_row("k0", [1, 2, 4], ts=3))
    made.followed(1)


def test_another_dimension_in_the_configuration_is_refused(made, spark, tmp_path):
    other = following_vectors(spark, made.table.path, tmp_path / "other", "vec", 4)
    with pytest.raises(TableError, match="not 4"):
        sync(other)
    assert other.store.open() is None


@pytest.mark.parametrize("type_", [COW], indirect=True)
@pytest.mark.parametrize("name", ["_DECODER", "_ELEMENTS"])
def test_without_hudis_decoder_the_table_is_reconciled(name, made, monkeypatch):
    monkeypatch.setattr(decoding, name, "org.apache.hudi.NotThere")
    made.write(vector_row("k0", [1, 2, 4], ts=3))
    with pytest.raises(HistoryLost, match="does not decode column 'vec'"):
        sync(made.parts, FOLLOWED)
    assert sync(made.parts).action is Action.RECONCILE
    made.agrees()


def test_a_damaged_index_of_vectors_is_found_and_repaired(made, tmp_path):
    data = lance.dataset(str(tmp_path / "index" / "sample.g1.lance"))
    data.delete("_key = 'k0'")
    data.update({"_vector": "[9.0, 9.0, 9.0]"}, where="_key = 'k1'")
    data.update({"num": "99"}, where="_key = 'k2'")
    found = verify(made.parts)
    assert (len(found.missing), len(found.stale)) == (1, 2)
    assert repair(made.parts).repaired == 3
    made.agrees()


def test_init_proposes_the_column_and_its_dimension(made, spark, tmp_path):
    file = tmp_path / "lakewake.toml"
    found = draft_config(str(made.table.path), look_at(str(made.table.path)), file, "vectors")
    assert (found.vector, found.dimension) == ("vec", DIMENSION)
    with lakewake.open(file, spark=spark) as indexes:
        index = indexes["vectors"]
        assert index.sync().rows_changed == 6
        made.write(vector_row("k0", [5, 5, 5], ts=2))
        assert index.sync(reconcile=False).action is Action.FOLLOW
        (hit,) = index.search(vector=[5, 5, 5], k=1).hits
        assert hit.key == "k0"
        assert index.verify().agrees
