"""Which file groups a window of commits touched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakewake.errors import HistoryLost
from lakewake.model.frontier import Frontier
from lakewake.model.timeline import (
    CommitMetadata,
    FileGroup,
    Instant,
    Look,
    TableIdentity,
    WriteStat,
)
from lakewake.source.lineage import (
    SMALL_BYTES,
    beside,
    inserted_at_once,
    is_small,
    outlives,
    touched_by,
    window_of,
)


def group(name: str) -> FileGroup:
    return FileGroup("p", name)


def wrote(name: str, at: int, before: int | None = None, *, deletes: int = 0, log: bool = False):
    path = f"p/.{name}_{at}.log.1" if log else f"p/{name}_0_{at}.parquet"
    previous = f"{name}_0_{before}.parquet" if before else None
    added = 0 if before else 1
    return WriteStat(group(name), path, previous, added, 1 - added, deletes)


def upsert(*writes: WriteStat) -> CommitMetadata:
    return CommitMetadata("UPSERT", writes)


def cluster(old: list[str], *writes: WriteStat) -> CommitMetadata:
    return CommitMetadata("CLUSTER", writes, tuple(group(n) for n in old))


def test_table_services_alone_touch_nothing():
    window = [cluster(["f"], wrote("g", 2)), CommitMetadata("COMPACT", (wrote("h", 3, 1),))]
    assert touched_by(window).groups == frozenset()


def test_an_update_touches_its_file_group_between_the_first_and_the_last_base_file():
    touched = touched_by([upsert(wrote("f", 2, 1)), upsert(wrote("f", 3, 2))])
    assert touched.groups == {group("f")}
    assert touched.first == {group("f"): "p/f_0_1.parquet"}
    assert touched.last == {group("f"): "p/f_0_3.parquet"}
    assert not touched.needs_before


def test_a_file_group_without_an_older_base_file_was_created_in_the_window():
    touched = touched_by([upsert(wrote("f", 2)), upsert(wrote("f", 3, 2))])
    assert touched.born == {group("f")}
    assert touched.after == {group("f")}


def test_a_file_group_whose_previous_commit_is_named_was_not_created_in_the_window():
    by_flink = replace(wrote("f", 2), previous_commit="1")
    touched = touched_by([upsert(by_flink), upsert(replace(wrote("f", 3), previous_commit="2"))])
    assert touched.born == frozenset()
    assert touched.first == {}
    assert touched.last == {group("f"): "p/f_0_3.parquet"}


def test_deletes_logs_plain_inserts_and_replaced_groups_need_the_state_before():
    assert touched_by([upsert(wrote("f", 2, 1, deletes=1))]).needs_before
    assert touched_by([upsert(wrote("f", 2, log=True))]).needs_before
    assert touched_by([CommitMetadata("INSERT", (wrote("f", 2, 1),))]).needs_before
    assert touched_by([CommitMetadata("INSERT_OVERWRITE", (), (group("f"),))]).needs_before
    assert touched_by([CommitMetadata("INSERT_OVERWRITE", (wrote("f", 2),))]).needs_before


def test_an_upsert_that_adds_rows_needs_the_state_before_because_they_may_be_copies():
    assert touched_by([upsert(wrote("f", 2))]).needs_before
    assert touched_by([upsert(replace(wrote("f", 2, 1), inserts=1))]).needs_before
    assert not touched_by([upsert(wrote("f", 2, 1)), cluster(["f"], wrote("g", 3))]).needs_before


def test_a_file_group_with_only_logs_was_not_created_in_the_window():
    assert touched_by([upsert(wrote("f", 2, log=True))]).born == frozenset()


def test_clustering_after_an_update_brings_its_inputs_and_outputs_together():
    window = [upsert(wrote("f", 2, 1)), cluster(["f", "sibling"], wrote("g", 3))]
    touched = touched_by(window)
    assert touched.groups == {group("f"), group("sibling"), group("g")}
    assert touched.after == {group("g")}
    assert touched.born == {group("g")}


def test_clustering_of_untouched_file_groups_is_ignored():
    window = [upsert(wrote("f", 2, 1)), cluster(["other"], wrote("g", 3))]
    assert touched_by(window).groups == {group("f")}


def test_lineage_is_followed_through_several_clusterings():
    window = [
        cluster(["a"], wrote("b", 2)),
        upsert(wrote("b", 3, 2)),
        cluster(["b", "x"], wrote("c", 4)),
    ]
    touched = touched_by(window)
    assert touched.groups == {group(n) for n in "abcx"}
    assert touched.after == {group("c")}


def test_an_overwritten_group_holds_nothing_afterwards():
    window = [CommitMetadata("INSERT_OVERWRITE", (wrote("g", 2),), (group("f"),))]
    touched = touched_by(window)
    assert touched.after == {group("g")}
    assert touched.groups - touched.born == {group("f")}


def looked(*commits: tuple[int, int, CommitMetadata]) -> Look:
    """A timeline of commits, each with its requested and its completion time."""
    return Look(
        TableIdentity("t", "id", "", "COPY_ON_WRITE"),
        tuple(Instant(str(r), str(c), "commit") for r, c, _ in commits),
        {},
        {str(r): commit for r, _, commit in commits},
    )


def at_once(look: Look, *absorbed: int) -> bool:
    done = {str(r): look.completed[str(r)] for r in absorbed}
    pending = [i for i in look.instants if i.requested not in done]
    return inserted_at_once(look, Frontier(look.table, done), pending)


def test_upserts_that_overlap_may_have_stored_a_key_twice():
    one, other = upsert(wrote("f", 1)), upsert(wrote("g", 2))
    assert at_once(looked((1, 3, one), (2, 5, other)))
    assert at_once(looked((1, 3, one), (2, 5, other)), 1)
    assert not at_once(looked((1, 2, one), (3, 5, other)))
    assert not at_once(looked((1, 2, one), (3, 5, other)), 1)


def test_updates_and_table_services_beside_other_writers_store_no_key_twice():
    other = upsert(wrote("f", 1))
    update = upsert(replace(wrote("g", 2, 1), inserts=0))
    assert not at_once(looked((1, 3, other), (2, 5, update)), 1)
    assert not at_once(looked((1, 3, cluster(["f"], wrote("g", 1))), (2, 5, other)))
    assert not at_once(looked((1, 3, other), (2, 5, cluster(["f"], wrote("g", 2)))), 1)


def test_a_commit_archived_after_it_was_absorbed_still_counts():
    look = looked((2, 5, upsert(wrote("f", 2))))
    assert inserted_at_once(look, Frontier(look.table, {"1": "3"}), look.instants)


def followed(look: Look, *absorbed: int):
    """What a sync touches that absorbed these commits and follows the others."""
    done = {str(r): look.completed[str(r)] for r in absorbed}
    frontier = Frontier(look.table, done)
    pending = sorted(
        (i for i in look.instants if i.requested not in done), key=lambda i: i.completed
    )
    return touched_by(
        window_of(look, frontier, pending), tuple(beside(look, frontier, pending).values())
    )


def test_clustering_whose_input_was_written_after_its_plan_changes_data():
    planned, update = cluster(["f", "x"], wrote("g", 2)), upsert(wrote("f", 3, 1))
    for absorbed in ((3,), ()):
        touched = followed(looked((2, 5, planned), (3, 4, update)), *absorbed)
        assert touched.groups == {group("f"), group("x"), group("g")}
        assert touched.after == {group("g")}
        assert touched.needs_before
        assert touched.overtaken


def test_clustering_beside_writers_of_other_file_groups_changes_no_data():
    planned, update = cluster(["f"], wrote("g", 2)), upsert(wrote("h", 3, 1))
    assert followed(looked((2, 5, planned), (3, 4, update)), 3).groups == frozenset()
    before = upsert(wrote("f", 1))
    assert followed(looked((1, 2, before), (3, 4, planned)), 1).groups == frozenset()


def test_rows_that_clustering_brings_back_were_not_there_before():
    planned = cluster(["f"], wrote("g", 2))
    overwrite = CommitMetadata("INSERT_OVERWRITE", (wrote("o", 3),), (group("f"),))
    touched = followed(looked((2, 5, planned), (3, 4, overwrite)), 3)
    assert touched.groups == touched.born == {group("g")}


def test_a_slow_writer_into_a_group_that_an_absorbed_commit_replaced_touches_nothing():
    slow, planned = upsert(wrote("f", 2, 1)), cluster(["f"], wrote("g", 3))
    assert followed(looked((2, 5, slow), (3, 4, planned)), 3).groups == frozenset()


def test_of_two_writers_of_one_file_group_the_newer_instant_wins_whichever_completed_last():
    slow, fast = upsert(wrote("f", 2, 1)), upsert(wrote("f", 3, 1))
    look = looked((2, 5, slow), (3, 4, fast))
    touched = followed(look, 3)
    assert touched.first == touched.last == {group("f"): "p/f_0_3.parquet"}
    assert followed(look).first == {group("f"): "p/f_0_1.parquet"}
    assert followed(look).last == {group("f"): "p/f_0_3.parquet"}


def test_compaction_changes_data_only_beside_a_writer_in_flight_at_its_plan():
    compaction = CommitMetadata("COMPACT", (wrote("f", 3, 1),))
    update = upsert(wrote("f", 2, log=True))
    assert followed(looked((2, 4, update), (3, 5, compaction)), 2).overtaken
    later = upsert(wrote("f", 4, log=True))
    assert followed(looked((3, 6, compaction), (4, 5, later)), 4).groups == frozenset()


def test_log_compaction_beside_any_writer_of_its_file_group_changes_data():
    compaction = CommitMetadata("LOG_COMPACT", (wrote("f", 3, log=True),))
    later = upsert(wrote("f", 4, log=True))
    assert followed(looked((3, 6, compaction), (4, 5, later)), 4).overtaken


def test_an_archived_commit_that_overlapped_a_new_one_makes_history_lost():
    look = looked((2, 5, upsert(wrote("f", 2))))
    with pytest.raises(HistoryLost, match="instant 1, absorbed while 2 was in flight"):
        beside(look, Frontier(look.table, {"1": "3"}), look.instants)


def test_the_files_of_a_look_stay_readable_after_newer_commits_and_cleans_that_keep_them():
    def at(*instants: Instant) -> Look:
        return replace(looked(), instants=instants)

    one, two, three = (Instant(str(n), str(n), "commit") for n in (1, 2, 3))
    clean, open_ = Instant("4", None, "clean"), Instant("2", None, "commit")
    assert outlives(at(one, two), at(one, two, three), {})
    assert outlives(at(one, two), at(one, two, three, clean), {"4": "2"})
    assert not outlives(at(one, two), at(one, two, three, clean), {"4": "3"})
    assert not outlives(at(one, two), at(one, two, three, clean), {"4": ""})
    # A writer in flight may have replaced a file that is kept only from 3 on.
    assert not outlives(at(one, open_, three), at(one, two, three, clean), {"4": "3"})
    assert not outlives(at(one, two), at(two, three), {})
    assert not outlives(at(one, two), at(one, two, Instant("3", "4", "restore")), {})


def test_a_window_is_small_if_its_base_files_are():
    half = replace(wrote("f", 2, 1), size=SMALL_BYTES // 2)
    assert is_small([upsert(half)])
    assert is_small([upsert(half), upsert(replace(wrote("g", 3), size=SMALL_BYTES // 2))])
    assert not is_small([upsert(half), upsert(replace(wrote("g", 3), size=SMALL_BYTES))])


def test_a_window_is_not_small_if_the_size_of_what_it_reads_is_not_known():
    file = replace(wrote("f", 2, 1), size=100)
    assert not is_small([upsert(file), upsert(wrote("g", 3))])
    assert not is_small([upsert(replace(wrote("f", 2, log=True), size=100))])
    assert not is_small([cluster(["old"], file)])
