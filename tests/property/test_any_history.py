"""The central promise, for any history of a table, any cut-off and any two syncers at once."""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import ConfigError, HistoryLost, IndexMissing, RecipeMismatch
from lakewake.model import frontier, pages
from lakewake.model.chunks import Batch, text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.plan import Action
from lakewake.model.recipe import Chunking, Recipe
from lakewake.model.rows import RowId
from lakewake.model.selection import parse_selection
from lakewake.source import memory
from lakewake.source.memory import History, MemoryTable
from lakewake.store import Store
from lakewake.store.lance import upkeep as lance_upkeep
from lakewake.store.lance import words as lance_words
from lakewake.store.lance.store import LanceStore
from lakewake.store.memory import MemoryStore
from lakewake.store.qdrant.location import CONNECTIONS, QdrantLocation
from lakewake.store.qdrant.store import QdrantStore
from lakewake.sync import NO_OPTIONS, IndexParts, SyncOptions, index_rows, spool, sync, vectors
from lakewake.testing.answers import Answering
from lakewake.testing.answers import built_of as answering
from lakewake.verify import repair, verify
from lakewake.verify.vectors import Vectors
from support.moments import (
    Choosy,
    PowerCut,
    Turns,
    at_each_moment,
    at_moment,
    cut_off,
    finish,
    known_hashes,
    never,
    take_turns,
    watched,
)
from support.oracle import build, contents
from support.qdrant.edge_engine import EdgeLocation
from support.qdrant.locations import InMemory
from support.sampling import HASHING, SCHEMA, rid, sample_parts, sample_recipe, values

FIRST = "A first sentence that several of the texts begin with."
IDS = [rid(key, part) for key in ("a", "b", "c") for part in ("x", "y")]
LAST = "And a last sentence that others of the texts end with."
TEXTS = [
    *("one", "two", "", None, "odd", f"{FIRST} And its end.", f"{FIRST} And an odd end of it."),
    *(f"{FIRST} {LAST}", f"A first sentence of its own, which nobody else has. {LAST}"),
    f"{FIRST} One more sentence stands in between the two of them. {LAST}",
]


def _some_rows(count: int = 300) -> list[dict[RowId, dict[str, object]]]:
    dice = random.Random(0)
    return [
        {
            i: values(dice.choice(TEXTS), dice.randrange(2))
            for i in dice.sample(IDS, n * 4 // count + 1)
        }
        for n in range(count)
    ]


# Each is drawn as one choice, small ones first: drawing them part by part would take longer than
# the syncs themselves.
ROWS = st.sampled_from(_some_rows())
GONE = st.sampled_from([set(some) for n in (1, 2, 3) for some in combinations(IDS, n)])
TURNS = st.integers(0, 2**18 - 1).map(lambda bits: [bool(bits >> n & 1) for n in range(18)])
#: More moments than a sync or a repair has, counted from its first one.
MOMENTS = st.integers(0, 19)
RECIPE = sample_recipe(Chunking(tokens=14))
ASKED = Answering(HashingEmbedder(HASHING), ("an odd end of one sentence",), limits=(2,))
OPTIONS = st.sampled_from(
    [
        *[NO_OPTIONS] * 4,
        SyncOptions(retry_quarantined=True),
        SyncOptions(reconcile=True),
        SyncOptions(reconcile=True, retry_quarantined=True),
        SyncOptions(rebuild=True),
    ]
)
SPOILT = {
    "_text": "forged",
    "num": 9,
    "_hash": "x",
    "_source_hash": "x",
    "_payload_hash": "x",
    "_vector": [1.0] + [0.0] * 31,
    "_key": "nobody",
}


@pytest.fixture(autouse=True, scope="module")
def in_small_parts():
    """Split six rows into several batches, embedder calls, fragments and word files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "BATCH_ROWS", 3)
        patch.setattr(vectors, "EMBED_TEXTS", 2)
        patch.setattr(index_rows, "WRITE_ROWS", 2)
        patch.setattr(spool, "HELD_IDS", 1)
        patch.setattr(frontier, "INLINE", 1)
        patch.setattr(pages, "PAGE_ROWS", 1)
        patch.setattr(lance_words, "SLICE", 4)
        patch.setattr(lance_upkeep, "MAX_SMALL_FRAGMENTS", 3)
        yield


class AnyHistory(RuleBasedStateMachine):
    """Rows are written, deleted, overwritten, restored; syncs run and are cut off anywhere.

    Attributes:
        answers: compare search answers too, with those of the memory store as reference.
    """

    answers = False
    recipe = RECIPE

    def __init__(self) -> None:
        super().__init__()
        self.table = MemoryTable(self.recipe, SCHEMA)
        self.states: dict[str, History] = {}
        self.parts = self.syncer()
        self.copy = History()
        self.compared = ""

    def store(self) -> Store:
        """The store of the index, opened again."""
        if not hasattr(self, "_store"):
            self._store = MemoryStore()
        return self._store

    def syncer(self) -> Any:
        """A syncer of the index."""
        shared = getattr(self, "parts", None)
        vector_cache = shared.vector_cache.inner if shared else None
        made = sample_parts(
            self.table, self.store(), recipe=self.table._recipe, vector_cache=vector_cache
        )
        choosy = Choosy()
        if shared:
            choosy.word = shared.embedder.word
        return watched(replace(made, embedder=choosy), self.states)

    @rule(rows=ROWS)
    def upsert(self, rows) -> None:
        self.table.upsert(rows)

    @rule(ids=GONE)
    def delete(self, ids) -> None:
        self.table.delete(ids)

    @rule(rows=ROWS)
    def overwrite(self, rows) -> None:
        self.table.overwrite(rows)

    @rule(rows=ROWS, meanwhile=ROWS)
    def begin_and_be_overtaken(self, rows, meanwhile) -> None:
        self.table.begin(rows)
        self.table.upsert(meanwhile)

    @rule(rows=ROWS, gone=GONE)
    def plan_a_clustering_and_write_over_it(self, rows, gone) -> None:
        self.table.plan_clustering()
        self.table.upsert(rows)
        self.table.delete(gone)

    @precondition(lambda self: self.table.history.open)
    @rule(data=st.data(), keep=st.sampled_from([None, 1, 2]))
    def complete(self, data, keep) -> None:
        self.table.complete(data.draw(st.sampled_from(sorted(self.table.history.open))))
        if keep:
            self.table.archive(keep)

    @precondition(lambda self: self.table.history.open)
    @rule(data=st.data())
    def abort(self, data) -> None:
        self.table.abort(data.draw(st.sampled_from(sorted(self.table.history.open))))

    @rule(commits=st.integers(1, 3))
    def restore(self, commits) -> None:
        self.table.restore(commits)

    @rule(
        what=st.sampled_from(["cluster", "savepoint", "archive", "clean"]), keep=st.integers(1, 4)
    )
    def keep_house(self, what, keep) -> None:
        if what in ("cluster", "savepoint"):
            getattr(self.table, what)()
        else:
            getattr(self.table, what)(keep)

    @rule(type_=st.sampled_from([pa.int64(), pa.float64()]), rows=ROWS)
    def retype(self, type_, rows) -> None:
        self.table.retype("num", type_)
        self.table.upsert(rows)

    @rule()
    def keep_a_copy(self) -> None:
        self.copy = self.table.history

    @rule(rows=ROWS, again=st.booleans())
    def put_the_copy_back_or_create_the_table_again(self, rows, again) -> None:
        self.table.history = History() if again else self.copy
        if again:
            self.table.upsert(rows)

    @rule(word=st.sampled_from(["odd", ""]), gives_the_others=st.booleans())
    def the_embedder_changes_its_mind(self, word, gives_the_others) -> None:
        self.parts.embedder.inner.word = word
        self.parts.embedder.inner.gives_the_others = gives_the_others

    @rule(at=MOMENTS, options=OPTIONS)
    def sync_cut_off(self, at, options) -> None:
        at_moment(self.parts, at, cut_off)
        with suppress(PowerCut):
            sync(self.parts, options)
        at_each_moment(self.parts, never)

    @rule(at=MOMENTS, rows=ROWS, options=OPTIONS, cleaned=st.booleans())
    def sync_while_the_table_is_written(self, at, rows, options, cleaned) -> None:
        at_moment(self.parts, at, lambda: self.write_and_clean(rows, cleaned))
        sync(self.parts, options)
        at_each_moment(self.parts, never)

    def write_and_clean(self, rows, cleaned) -> None:
        self.table.upsert(rows)
        if cleaned:
            self.table.clean(1)

    @rule(at=MOMENTS, commits=st.integers(1, 3))
    def sync_while_the_table_is_restored(self, at, commits) -> None:
        at_moment(self.parts, at, lambda: self.table.restore(commits))
        sync(self.parts)
        at_each_moment(self.parts, never)

    @rule(schedule=TURNS, at=st.integers(0, 18), rows=ROWS, options=st.tuples(OPTIONS, OPTIONS))
    def two_syncers_by_turns(self, schedule, at, rows, options) -> None:
        both = self.parts, self.syncer()
        works = [Turns(lambda p=p, w=w: sync(p, w)) for p, w in zip(both, options, strict=True)]
        for parts, work in zip(both, works, strict=True):
            at_each_moment(parts, work.moment)
        take_turns(schedule[:at], *works)
        self.table.upsert(rows)
        take_turns(schedule[at:], *works)
        finish(*works)
        at_each_moment(self.parts, never)

    def teardown(self) -> None:
        """End every history with an undisturbed sync."""
        at_each_moment(self.parts, never)
        self.sync_undisturbed(NO_OPTIONS)

    @rule(options=OPTIONS)
    def sync_undisturbed(self, options) -> None:
        known = known_hashes(self.parts)
        self.parts.embedder.received.clear()
        report = sync(self.parts, options)
        received = self.parts.embedder.received
        assert report.embedded == len(received)
        assert not known & {text_hash(text) for text in received}
        # A row that is retried on request may have the text of one refused just now.
        once = [t for t in received if not (options.retry_quarantined and "odd" in t)]
        assert len(once) == len(set(once))
        self.assert_equals_a_build_of(self.table.history)
        assert sync(self.parts).action is Action.NOTHING

    @invariant()
    def index_equals_its_table_as_of_its_frontier(self) -> None:
        index = self.parts.store.open()
        frontier = index.frontier().to_json() if index else ""
        if frontier != self.compared:
            self.assert_equals_a_build_of(self.states[frontier])

    def assert_equals_a_build_of(self, history: History) -> None:
        index = self.parts.store.open()
        aside = index.frontier().quarantine
        # Another syncer may have been the last, with another selection.
        built, chunks = built_of(history, index.recipe(), index.frontier())
        assert contents(index) == {i: c for i, c in built.items() if row_of(c) not in aside}
        assert all("odd" in history.commits[-1].rows[row].values["txt"] for row in aside)
        if self.answers:
            kept = [c for c in chunks if row_in(c) not in aside]
            ASKED.assert_alike(index, answering(index, kept))
        self.compared = index.frontier().to_json()

    @rule()
    def verify_agrees_at_any_time(self) -> None:
        before = self.parts.store.open()
        with suppress(HistoryLost, IndexMissing, RecipeMismatch):  # sync first
            assert verify(self.parts).agrees
        after = self.parts.store.open()
        assert before is after is None or before.frontier() == after.frontier()

    @rule(at=MOMENTS, rows=ROWS, cleaned=st.booleans())
    def verify_agrees_while_the_table_is_written(self, at, rows, cleaned) -> None:
        at_moment(self.parts, at, lambda: self.write_and_clean(rows, cleaned))
        self.verify_agrees_at_any_time()
        at_each_moment(self.parts, never)

    @precondition(lambda self: self.parts.store.open())
    @rule(data=st.data(), how=st.sampled_from(["gone", *SPOILT]), at=MOMENTS, rows=ROWS)
    def spoil_and_repair(self, data, how, at, rows) -> None:
        chunks = [c for c, _ in contents(self.parts.store.open()).values()]
        if not chunks:
            return
        chunk = data.draw(st.sampled_from(sorted(c["_id"] for c in chunks)))
        spoil(self.parts, chunk, how)
        if how == "_vector":
            self.parts.embedder.inner.word = ""  # a vector of a refused text cannot be checked
        self.repair_cut_off(at)
        at_moment(self.parts, at, lambda: self.write_and_clean(rows, True))
        with suppress(HistoryLost, RecipeMismatch):
            repair(self.parts, Vectors.ALL)
        at_each_moment(self.parts, never)
        sync(self.parts)
        # Errors in pending rows are found once they are synced.
        assert repair(self.parts, Vectors.ALL).agrees
        self.assert_equals_a_build_of(self.table.history)

    def repair_cut_off(self, at: int) -> None:
        at_moment(self.parts, at, cut_off)
        with suppress(PowerCut, HistoryLost, RecipeMismatch):
            repair(self.parts, Vectors.ALL)
        at_each_moment(self.parts, never)


_built: dict[object, tuple[dict[str, Any], list[dict[str, Any]]]] = {}


def built_of(
    history: History, recipe: Recipe = RECIPE, at: Frontier | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The content and the chunks of an index built from nothing for a table in this state.

    Cached.

    Args:
        at: its rows are selected on the same day, and they are as many.
    """
    table = MemoryTable(recipe, SCHEMA)
    table.history = history
    date, limit = (at.date, at.limit) if at else ("", 0)
    table.date = date
    state = history.commits[-1] if history.commits else None
    rows = (
        {row: (v.values["txt"], v.values["num"]) for row, v in state.rows.items()} if state else {}
    )
    num = state and state.schema.field("num").type
    key = frozenset(rows.items()), num, recipe.where, date, limit
    if key not in _built:
        index = build(sample_parts(table, recipe=recipe), SyncOptions(limit=limit))
        chunks = [c for b in index.scan(index.schema().names) for c in b.to_pylist()]
        _built[key] = contents(index), chunks
    return _built[key]


def row_of(chunk: tuple[dict[str, str], object]) -> RowId:
    return row_in(chunk[0])


def row_in(chunk: dict[str, str]) -> RowId:
    return RowId(chunk["_partition"], chunk["_key"])


def spoil(parts: IndexParts, chunk_id: str, how: str) -> None:
    """Put something else into an index without a sync, as a faulty tool would."""
    index = parts.store.open()
    rows = [r for b in index.scan(index.schema().names) for r in b.to_pylist()]
    [chunk] = [r for r in rows if r["_id"] == chunk_id]
    if how == "_source_hash" and chunk["_chunk"]:
        # Only that of the first chunk is ever read.
        row = chunk["_partition"], chunk["_key"]
        mine = (r for r in rows if (r["_partition"], r["_key"]) == row)
        chunk = next((r for r in mine if not r["_chunk"]), chunk)
    if how == "gone":
        row = chunk["_partition"], chunk["_key"]
        batch = _batch(index, [], [r["_id"] for r in rows if (r["_partition"], r["_key"]) == row])
    elif how == "_key":
        batch = _batch(index, [{**chunk, "_key": SPOILT[how], "_id": "of nobody"}], [])
    else:
        batch = _batch(index, [{**chunk, how: SPOILT[how]}], [])
    frontier = index.frontier()
    parts.store.commit(batch, expect=frontier, then=replace(frontier, sync=frontier.sync + 1))


def _batch(index, upserts, deletes) -> Batch:
    schema = index.schema()
    table = pa.Table.from_pylist(upserts, schema=schema)
    return Batch(schema, table.to_reader, tuple(deletes))


#: A row of `num` 0 enters on the second day and leaves on the fourth, one of `num` 1 a day later.
DAYS = [f"2026-01-0{n}" for n in range(1, 6)]
WINDOW = "date_add(DATE'2026-01-02', num) BETWEEN date_sub(current_date(), 1) AND current_date()"
SELECTED = [
    replace(RECIPE, where=parse_selection(where).text)
    for where in (f"{WINDOW} AND txt <> 'two'", "num = 1", f"num < 1 OR {WINDOW}")
]


class AnySelectedHistory(AnyHistory):
    """The same with a selection of rows: days pass, rows enter and leave, the selection changes."""

    recipe = SELECTED[0]

    @rule(day=st.sampled_from(DAYS))
    def another_day_comes(self, day) -> None:
        self.table.date = day

    @rule(day=st.sampled_from(DAYS), rows=ROWS, at=MOMENTS)
    def sync_while_a_day_ends(self, day, rows, at) -> None:
        self.table.upsert(rows)
        at_moment(self.parts, at, lambda: setattr(self.table, "date", day))
        sync(self.parts)
        at_each_moment(self.parts, never)

    @rule(number=st.integers(0, len(SELECTED)))
    def select_other_rows(self, number) -> None:
        self.table._recipe = [*SELECTED, RECIPE][number]
        self.parts = replace(self.parts, recipe=self.table._recipe)

    @rule(limit=st.integers(1, 4))
    def try_some_rows(self, limit) -> None:
        with suppress(ConfigError):  # it holds all its rows
            sync(self.parts, SyncOptions(limit=limit))

    @invariant()
    def it_is_of_its_day(self) -> None:
        index = self.parts.store.open()
        assert index is None or bool(index.frontier().date) == index.recipe().dated


class AnyHistoryInLance(AnyHistory):
    """The same on real files."""

    answers = True

    def store(self) -> Store:
        if not hasattr(self, "_folder"):
            self._folder = tempfile.TemporaryDirectory(prefix="lakewake-any-history-")
        return LanceStore(self._folder.name, "sample", words_min_chunks=1)

    def teardown(self) -> None:
        with self._folder:
            super().teardown()


class AnyHistoryInQdrant(AnyHistory):
    """The same on the local mode of the Qdrant client."""

    answers = True

    def location(self) -> QdrantLocation:
        """The location of Qdrant."""
        return InMemory()

    def store(self) -> Store:
        if not hasattr(self, "_location"):
            self._location = self.location()
        return QdrantStore(self._location, "sample", "sample")

    def teardown(self) -> None:
        super().teardown()
        CONNECTIONS.close(self._location)


class AnyHistoryInEdge(AnyHistoryInQdrant):
    """The same on Qdrant's real engine."""

    def location(self) -> QdrantLocation:
        self._folder = tempfile.TemporaryDirectory(prefix="lakewake-any-history-")
        return EdgeLocation(self._folder.name)

    def teardown(self) -> None:
        with self._folder:
            super().teardown()


class AnyHistoryInTheLake(AnyHistory):
    """The same in a Hudi table, with cells of a few chunks."""

    answers = True

    def store(self) -> Store:
        if not hasattr(self, "_folder"):
            self._folder = tempfile.TemporaryDirectory(prefix="lakewake-any-history-")
        from lakewake.spark.session import start_session
        from lakewake.store.hudi.store import HudiStore

        return HudiStore(
            self._folder.name, "sample", lambda: start_session({}), cell_chunks=3, ann_min_chunks=0
        )

    def teardown(self) -> None:
        with self._folder:
            super().teardown()


FAST = settings(
    stateful_step_count=12,
    deadline=None,
    # Shrinking is worth its time, explaining is not.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)

#: Several tests with their own examples, so that they can run in parallel.
PARTS = range(4)


def _part(machine: type[AnyHistory], part: int) -> type[AnyHistory]:
    return seed(part)(type(machine.__name__, (machine,), {}))


@pytest.mark.parametrize("part", PARTS)
def test_any_history_is_followed(part):
    run_state_machine_as_test(_part(AnyHistory, part), settings=settings(FAST, max_examples=600))


@pytest.mark.parametrize("part", PARTS)
def test_any_history_of_selected_rows_is_followed(part):
    machine = _part(AnySelectedHistory, part)
    run_state_machine_as_test(machine, settings=settings(FAST, max_examples=300))


@pytest.mark.parametrize("part", PARTS)
def test_any_history_is_followed_in_lance(part):
    machine = _part(AnyHistoryInLance, part)
    run_state_machine_as_test(machine, settings=settings(FAST, max_examples=15))


@pytest.mark.parametrize("part", PARTS)
def test_any_history_is_followed_in_qdrant(part):
    machine = _part(AnyHistoryInQdrant, part)
    run_state_machine_as_test(machine, settings=settings(FAST, max_examples=15))


@pytest.mark.parametrize("part", PARTS)
def test_any_history_is_followed_in_qdrants_real_engine(part):
    machine = _part(AnyHistoryInEdge, part)
    run_state_machine_as_test(machine, settings=settings(FAST, max_examples=4))


@pytest.mark.matrix
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("part", PARTS)
def test_any_history_is_followed_in_the_lake(part):
    machine = _part(AnyHistoryInTheLake, part)
    run_state_machine_as_test(machine, settings=settings(FAST, max_examples=5))


LONG = settings(FAST, stateful_step_count=40, derandomize=False)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_any_long_history_is_followed_in_memory():
    run_state_machine_as_test(AnyHistory, settings=settings(LONG, max_examples=5000))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_any_long_history_is_followed_in_lance():
    run_state_machine_as_test(AnyHistoryInLance, settings=settings(LONG, max_examples=200))
