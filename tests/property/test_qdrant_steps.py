"""A commit and a build in Qdrant, disturbed between each two of their steps.

At each such moment, one of these happens: the process dies; another writer finishes; upkeep
runs; readers read. Whatever happens, an index has its old content or its new content.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from qdrant_client.models import Filter

from lakewake.errors import IndexMissing, StaleFrontier
from lakewake.model.chunks import Batch
from lakewake.store import Removed
from lakewake.store.qdrant import upkeep
from lakewake.store.qdrant.location import CONNECTIONS, QdrantLocation
from lakewake.store.qdrant.points import Points
from lakewake.store.qdrant.store import QdrantStore
from lakewake.testing.samples import SCHEMA, as_stored, batch, chunk, contents, frontier, recipe
from support.moments import PowerCut
from support.qdrant.edge_engine import EdgeLocation
from support.qdrant.locations import Disturbed, InMemory, Moments

#: More moments than any work here has; each work is tried up to its last moment.
MOMENTS = 60
ROWS = [chunk("a", "red"), chunk("b", "white"), chunk("c", "rosé")]
BEFORE = as_stored(*ROWS)
CHANGED = [chunk("a", "orange"), chunk("d", "new")]
GONE = chunk("b")["_id"]
AFTER = as_stored(*CHANGED, ROWS[2])
OTHERS = as_stored(*ROWS, chunk("theirs"))

Work = Callable[[QdrantStore], None]


@pytest.fixture(params=["memory", "edge"])
def fresh_location(request: pytest.FixtureRequest) -> Iterator[Callable[[], QdrantLocation]]:
    made: list[QdrantLocation] = []
    with tempfile.TemporaryDirectory(prefix="lakewake-steps-") as folder:

        def make() -> QdrantLocation:
            while made:
                CONNECTIONS.close(made.pop())
            edge = request.param == "edge"
            made.append(EdgeLocation(tempfile.mkdtemp(dir=folder)) if edge else InMemory())
            return made[0]

        yield make
        make()
        CONNECTIONS.close(made.pop())


def store_in(location: QdrantLocation) -> QdrantStore:
    return QdrantStore(location, "wines", "wines")


def build(store: QdrantStore) -> None:
    store.create(recipe(), batch(*ROWS), frontier(1), after=0)


def commit(store: QdrantStore) -> None:
    store.commit(batch(*CHANGED, deletes=(GONE,)), frontier(1), frontier(2))


def commit_staged(store: QdrantStore) -> None:
    with store.staging() as staging:
        _, *written = [
            staging.write(SCHEMA, iter(batch(one).rows()))
            for one in (chunk("a", "of a part that failed"), *CHANGED)
        ]
        removed = Removed((GONE,), tuple(c["_id"] for c in CHANGED))
        store.commit(staging.batch(SCHEMA, written, removed), frontier(1), frontier(2))


def others(store: QdrantStore) -> None:
    """Commit as another writer, starting from the same frontier."""
    store.commit(batch(chunk("theirs")), frontier(1), frontier(2, "b"))


def disturbed(location: QdrantLocation, at: int, deed: Callable[[], None], work: Work) -> bool:
    """Do a work with something happening at one moment; return whether it had that moment."""
    moments = Moments(at, deed)
    there = Disturbed(location, moments)
    try:
        work(store_in(there))
    finally:
        CONNECTIONS.close(there)
    return moments.happened


class Death:
    """From this moment on nothing is done."""

    def __init__(self) -> None:
        self.dead = False

    def __call__(self) -> None:
        self.dead = True
        raise PowerCut


def killed(location: QdrantLocation, at: int, work: Work) -> bool:
    """Do a work in a process that dies at one moment."""
    death = Death()
    moments = Moments(at, death)

    def moment() -> None:
        if death.dead:
            raise PowerCut
        moments()

    there = Disturbed(location, moment)
    with suppress(PowerCut):
        work(store_in(there))
    CONNECTIONS.close(there)
    return moments.happened


def each_moment(happened: Callable[[int], bool]) -> None:
    """Try every moment."""
    for at in range(MOMENTS):
        if not happened(at):
            assert at > 6, "hardly any moment was tried"
            return
    raise AssertionError("there are more moments")


def check_tidy(store: QdrantStore, location: QdrantLocation, expected: dict[str, Any]) -> None:
    """Check that upkeep leaves the content of the index and nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "KEEP_FOR", -1.0)
        store.maintain()
    assert store.maintain() == {}
    assert contents(store.open()) == expected
    points = Points(location)
    (collection,) = (n for n in points.names() if upkeep.generation_number("wines", n))
    assert points.count(collection, Filter()) == len(expected)
    assert points.alias("wines") == collection


@pytest.mark.parametrize("work", [commit, commit_staged])
def test_a_commit_that_dies_between_any_two_steps_is_finished_by_the_next(
    work: Work, fresh_location: Callable[[], QdrantLocation]
) -> None:
    landed = []

    def happened(at: int) -> bool:
        location = fresh_location()
        store = store_in(location)
        build(store)
        early = store.open()
        cut = killed(location, at, work)
        reader = store.open()
        stands = {frontier(1).to_json(): BEFORE, frontier(2).to_json(): AFTER}
        assert contents(reader) == stands[reader.frontier().to_json()]
        landed.append(reader.frontier() == frontier(2))
        assert contents(early) == BEFORE
        commit(store_in(location))
        assert contents(store.open()) == AFTER
        assert contents(early) == BEFORE
        check_tidy(store, location, AFTER)
        return cut

    each_moment(happened)
    assert landed == sorted(landed)
    assert set(landed) == {False, True}


def test_after_a_death_another_batch_finds_the_old_frontier_or_raises_stale_frontier(
    fresh_location: Callable[[], QdrantLocation],
) -> None:
    outcomes = []

    def happened(at: int) -> bool:
        location = fresh_location()
        store = store_in(location)
        build(store)
        cut = killed(location, at, commit)
        try:
            others(store_in(location))
            outcomes.append(OTHERS)
        except StaleFrontier:
            outcomes.append(AFTER)
        check_tidy(store, location, outcomes[-1])
        return cut

    each_moment(happened)
    assert OTHERS in outcomes
    assert outcomes.count(AFTER) > 2, "the next writer finishes what was decided"


def test_upkeep_finishes_a_decided_commit_and_nothing_else(
    fresh_location: Callable[[], QdrantLocation],
) -> None:
    finished = []

    def happened(at: int) -> bool:
        location = fresh_location()
        store = store_in(location)
        build(store)
        cut = killed(location, at, commit)
        finished.append(store.maintain().get("commits_finished", 0))
        reader = store.open()
        expected = AFTER if reader.frontier() == frontier(2) else BEFORE
        assert contents(reader) == expected
        return cut

    each_moment(happened)
    assert 0 < sum(finished) < len(finished)


def test_a_build_that_dies_between_any_two_steps_leaves_nothing_or_the_index(
    fresh_location: Callable[[], QdrantLocation],
) -> None:
    def happened(at: int) -> bool:
        location = fresh_location()
        cut = killed(location, at, build)
        store = store_in(location)
        if store.open() is None:
            assert store.generation() == 0
            with pytest.raises(IndexMissing):
                commit(store)
            build(store)
        assert contents(store.open()) == BEFORE
        check_tidy(store, location, BEFORE)
        return cut

    each_moment(happened)


def test_a_rebuild_that_dies_between_any_two_steps_leaves_the_old_index_or_the_new_one(
    fresh_location: Callable[[], QdrantLocation],
) -> None:
    def rebuild(store: QdrantStore) -> None:
        store.create(recipe(), batch(*CHANGED), frontier(2), after=1)

    def happened(at: int) -> bool:
        location = fresh_location()
        store = store_in(location)
        build(store)
        cut = killed(location, at, rebuild)
        expected = {1: BEFORE, 2: as_stored(*CHANGED)}
        assert contents(store.open()) == expected[store.generation()]
        if store.generation() == 1:
            rebuild(store)
        check_tidy(store, location, as_stored(*CHANGED))
        return cut

    each_moment(happened)


@pytest.mark.parametrize("work", [commit, commit_staged])
def test_of_two_writers_at_any_two_steps_one_lands_and_the_other_raises(
    work: Work, fresh_location: Callable[[], QdrantLocation]
) -> None:
    winners = []

    def happened(at: int) -> bool:
        location = fresh_location()
        store = store_in(location)
        build(store)
        outcome: dict[str, bool] = {}

        def meanwhile() -> None:
            outcome["theirs"] = lands(lambda: others(store_in(location)))

        def ours(there: QdrantStore) -> None:
            outcome["ours"] = lands(lambda: work(there))

        disturbs = disturbed(location, at, meanwhile, ours)
        assert sum(outcome.values()) == 1
        winners.append(outcome["ours"])
        check_tidy(store, location, AFTER if outcome["ours"] else OTHERS)
        return disturbs

    each_moment(happened)
    assert set(winners) == {False, True}


def lands(work: Callable[[], None]) -> bool:
    try:
        work()
    except StaleFrontier:
        return False
    return True


def test_of_two_builders_at_any_two_steps_one_lands_and_the_other_raises(
    fresh_location: Callable[[], QdrantLocation],
) -> None:
    def happened(at: int) -> bool:
        location = fresh_location()
        outcome: dict[str, bool] = {}
        theirs = lambda: store_in(location).create(  # noqa: E731
            recipe(), batch(chunk("theirs")), frontier(1, "b"), after=0
        )

        def meanwhile() -> None:
            outcome["theirs"] = lands(theirs)

        def ours(there: QdrantStore) -> None:
            outcome["ours"] = lands(lambda: build(there))

        disturbs = disturbed(location, at, meanwhile, ours)
        assert sum(outcome.values()) == 1
        check_tidy(
            store_in(location), location, BEFORE if outcome["ours"] else as_stored(chunk("theirs"))
        )
        return disturbs

    each_moment(happened)


def test_a_writer_that_slept_through_later_commits_and_upkeep_changes_nothing(
    fresh_location: Callable[[], QdrantLocation],
) -> None:
    """However late it continues, others finish what it began, or nobody does."""

    def happened(at: int) -> bool:
        location = fresh_location()
        store = store_in(location)
        build(store)
        stood: list[dict[str, Any]] = []
        landed: list[bool] = []

        def meanwhile() -> None:
            awake = store_in(location)
            # A decided commit is finished first; then others continue from there.
            awake.maintain()
            landed.append(awake.open().frontier() == frontier(2))
            for n in range(3):
                now = awake.open().frontier()
                rows = batch(chunk("a", f"later {n}"), deletes=(chunk("c")["_id"],))
                awake.commit(rows, now, frontier(now.sync + 1, "b"))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(upkeep, "KEEP_FOR", -1.0)
                awake.maintain()
            stood.append(contents(awake.open()))

        slept = disturbed(
            location, at, meanwhile, lambda there: landed.append(lands(lambda: commit(there)))
        )
        if slept:
            # It learns correctly whether its batch landed before the others'.
            assert landed[0] == landed[1]
            assert contents(store.open()) == stood[0]
            check_tidy(store, location, stood[0])
        return slept

    each_moment(happened)


def test_readers_at_any_step_see_the_index_before_or_after(
    fresh_location: Callable[[], QdrantLocation],
) -> None:
    location = fresh_location()
    build(store_in(location))
    early = store_in(location).open()
    seen: list[dict[str, Any]] = []

    def look() -> None:
        assert contents(early) == BEFORE
        reader = store_in(location).open()
        seen.append(contents(reader))
        expected = AFTER if reader.frontier() == frontier(2) else BEFORE
        assert seen[-1] == expected
        assert reader.counts() == (len(expected), len(expected))

    there = Disturbed(location, look)
    commit(store_in(there))
    CONNECTIONS.close(there)
    assert BEFORE in seen
    assert seen[-1] == AFTER


def test_a_batch_whose_points_upkeep_removed_is_stale(
    fresh_location: Callable[[], QdrantLocation],
) -> None:
    location = fresh_location()
    store = store_in(location)
    build(store)

    def slow() -> Any:
        yield from batch(*(chunk(str(n)) for n in range(300))).rows()
        awake = store_in(location)
        others(awake)
        awake.maintain()
        yield from batch(chunk("last")).rows()

    late = Batch(SCHEMA, lambda: pa.RecordBatchReader.from_batches(SCHEMA, slow()))
    with pytest.raises(StaleFrontier):
        store.commit(late, frontier(1), frontier(2))
    check_tidy(store, location, OTHERS)
