"""A read of the whole table sees one state, whatever is written and cleaned meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lakewake.embed.cache import MemoryVectorCache
from lakewake.errors import HistoryLost
from lakewake.model.chunks import Batch, chunk_id
from lakewake.model.plan import Action
from lakewake.model.rows import RowId
from lakewake.source import TableMoved, follow
from lakewake.store.memory import MemoryStore
from lakewake.sync import IndexParts, SyncOptions, sync
from lakewake.verify import repair, verify
from support.hudi.tables import HudiTables, row
from support.oracle import built_from_nothing, following, indexed

pytestmark = pytest.mark.spark

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"


@dataclass
class Moving:
    """A table that changes at a given moment of a read, and an index of it."""

    table: HudiTables
    parts: IndexParts
    ts: int = 1

    def commit_and_clean(self) -> None:
        """Change one row, and clean the file that a read of the earlier state needs."""
        self.ts += 1
        self.table.write([row("k0", f"text at {self.ts}", ts=self.ts)])
        if self.table.type == MOR:
            self.table.compact()
        self.table.clean(policy="KEEP_LATEST_FILE_VERSIONS", fileversions__retained="1")

    def lose(self, gone: RowId) -> None:
        """Remove a row from the index without a sync."""
        index = self.parts.store.open()
        assert index is not None
        ids = [chunk_id(gone, "text", 0)]
        batch = Batch(index.schema(), index.schema().empty_table().to_reader, tuple(ids))
        stands = index.frontier()
        self.parts.store.commit(batch, expect=stands, then=replace(stands, sync=stands.sync + 1))

    def right_after(
        self, method: str, does: Callable[[], object], *, call: int = 1, of: object = None
    ) -> None:
        """Call the function once, when this call of the table's method, or `of`'s, has returned."""
        owner, left = of or self.parts.table, call
        inner = getattr(owner, method)

        def watched(*args: object, **named: object) -> object:
            nonlocal left
            out = inner(*args, **named)
            left -= 1
            if left == 0:
                setattr(owner, method, inner)
                does()
            return out

        setattr(owner, method, watched)


@pytest.fixture(scope="module", params=[COW, MOR])
def moving(request, spark, small_tables, tmp_path_factory) -> Moving:
    """Six rows in two partitions, some of them in log files, all of them indexed."""
    folder: Path = tmp_path_factory.mktemp("moving")
    table = HudiTables(spark, folder / "table", request.param, options=small_tables)
    table.write([row(f"k{n}", part="ab"[n % 2]) for n in range(6)])
    table.write([row("k0", "changed", ts=1), row("k1", "changed", part="b", ts=1)])
    parts = following(spark, table.path, folder / "index")
    sync(parts)
    return Moving(table, parts)


def test_a_build_has_every_row_when_files_are_cleaned_after_it_checked_the_timeline(moving):
    fresh = replace(moving.parts, store=MemoryStore(), vector_cache=MemoryVectorCache())
    moving.right_after("check_unmoved", moving.commit_and_clean)
    sync(fresh)
    assert indexed(fresh) == built_from_nothing(fresh)


def test_a_reconcile_deletes_no_row_when_files_are_cleaned_after_it_checked_the_timeline(moving):
    sync(moving.parts)
    moving.right_after("check_unmoved", moving.commit_and_clean)
    report = sync(moving.parts, SyncOptions(reconcile=True))
    assert (report.rows_changed, report.rows_deleted) == (1, 0)
    assert indexed(moving.parts) == built_from_nothing(moving.parts)


def test_rows_read_by_key_are_there_when_files_are_cleaned_after_the_timeline_was_checked(moving):
    wanted = {RowId("part=a", "k0"), RowId("part=a", "k2"), RowId("part=b", "k1")}

    def read() -> set[RowId]:
        look = moving.parts.table.look(None)
        return {i for b in moving.parts.table.rows(look, wanted).rows for i in b.ids}

    moving.right_after("check_unmoved", moving.commit_and_clean)
    with pytest.raises(TableMoved):
        read()
    assert read() == wanted


def test_verify_agrees_when_files_are_cleaned_after_it_checked_the_timeline(moving):
    sync(moving.parts)
    moving.right_after("check_unmoved", moving.commit_and_clean)
    # Without the files that show what is pending, verify asks to sync first.
    with suppress(HistoryLost):
        report = verify(moving.parts)
        assert report.agrees
        assert report.pending == 1
    sync(moving.parts)
    assert verify(moving.parts).agrees


def test_a_repair_mends_every_row_when_files_are_cleaned_after_it_checked_the_timeline(moving):
    sync(moving.parts)
    moving.lose(RowId("part=a", "k2"))
    # The first read finds the differences, the second reads only those rows.
    moving.right_after("check_unmoved", moving.commit_and_clean, call=2)
    with suppress(HistoryLost):
        assert repair(moving.parts).agrees
    sync(moving.parts)
    assert indexed(moving.parts) == built_from_nothing(moving.parts)


def test_a_follow_loses_no_change_when_files_are_cleaned_before_its_first_job(moving):
    sync(moving.parts)
    moving.ts += 1
    moving.table.write([row("k1", f"text at {moving.ts}", part="b", ts=moving.ts)])
    moving.table.delete("k5", part="b")
    moving.table.write([row("k5", part="b", ts=10**7)])
    moving.right_after("_difference", moving.commit_and_clean, of=follow)
    sync(moving.parts)
    sync(moving.parts)
    assert indexed(moving.parts) == built_from_nothing(moving.parts)


def test_a_table_that_commits_at_every_look_is_built_reconciled_and_then_followed(moving):
    fresh = replace(moving.parts, store=MemoryStore(), vector_cache=MemoryVectorCache())
    table, look = moving.parts.table, moving.parts.table.look

    def commit_then_look(frontier):
        # A sync begins with a look; the second look checks a read.
        if frontier is not None and not frontier.sync:
            moving.ts += 1
            moving.table.write([row("k0", f"text at {moving.ts}", ts=moving.ts)])
        return look(frontier)

    table.look = commit_then_look
    try:
        assert sync(fresh).action is Action.BUILD
        assert sync(fresh, SyncOptions(reconcile=True)).action is Action.RECONCILE
    finally:
        del table.look
    assert sync(fresh).action is Action.FOLLOW
    assert indexed(fresh) == built_from_nothing(fresh)
