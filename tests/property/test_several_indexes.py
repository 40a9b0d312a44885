"""Any history of a table with three indexes, which are synced in rounds and fail at times."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import EmbedError
from lakewake.model.plan import Action
from lakewake.model.recipe import Recipe, TextField
from lakewake.model.report import SyncReport
from lakewake.source.memory import History, MemoryTable
from lakewake.sync import sync
from lakewake.sync.together import Round
from support.moments import PowerCut, at_each_moment, at_moment, cut_off, never, watched
from support.oracle import build, contents
from support.sampling import HASHING, rid, sample_parts, values
from support.sampling import SCHEMA as FLAT

BOX = pa.struct({"name": pa.string(), "size": pa.int64(), "tags": pa.list_(pa.string())})
SCHEMA = FLAT.append(pa.field("box", BOX))
BOXES = (
    None,
    {},
    {"name": "n", "size": 1, "tags": ["a", None, "b"]},
    {"name": "n", "size": 2, "tags": []},
    {"name": " ", "size": None, "tags": None},
)
IDS = [rid(key, part) for key in ("a", "b", "c") for part in ("x", "y")]
ROWS = st.dictionaries(
    st.sampled_from(IDS),
    st.builds(
        lambda txt, num, box: {**values(txt, num), "box": box},
        st.sampled_from(["one", "two", "three", "", None]),
        st.integers(0, 2),
        st.sampled_from(BOXES),
    ),
    min_size=1,
    max_size=4,
)
GONE = st.sets(st.sampled_from(IDS), min_size=1, max_size=3)
MODEL = HashingEmbedder(HASHING).identity
#: Different texts and columns of one table.
RECIPES = {
    "texts": Recipe(MODEL, (TextField("text", "{txt}"),), payload=("num",)),
    "numbers": Recipe(MODEL, (TextField("text", "{num} {txt}"),), payload=("txt", "num")),
    "again": Recipe(MODEL, (TextField("other", "{txt}"),)),
    "nested": Recipe(
        MODEL,
        (TextField("text", "{txt}: {box.name} ({box.tags})"),),
        payload=("box.size", "box.tags", "num"),
        rendering=2,
    ),
}
MOMENTS = st.integers(0, 19)


class Seen(MemoryTable):
    """The table as another recipe sees it."""

    def __init__(self, table: MemoryTable, recipe: Recipe) -> None:
        self._table = table
        super().__init__(recipe, SCHEMA)

    @property
    def history(self) -> History:
        return self._table.history

    @history.setter
    def history(self, _: History) -> None:
        """It only reads."""


class Fragile(HashingEmbedder):
    """An embedder that may be out of order."""

    out_of_order = False

    def embed(self, texts):
        if self.out_of_order:
            raise EmbedError("out of order", hint="repair it")
        return super().embed(texts)


class SeveralIndexes(RuleBasedStateMachine):
    """Rows are written and deleted; rounds of syncs run, and some syncs fail or are cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.table = MemoryTable(RECIPES["texts"], SCHEMA)
        self.states: dict[str, History] = {"": History()}
        self.parts: dict[str, Any] = {}
        for name, recipe in RECIPES.items():
            made = sample_parts(Seen(self.table, recipe), recipe=recipe)
            self.parts[name] = watched(replace(made, name=name, embedder=Fragile(HASHING)))

    def note(self) -> None:
        commits = self.table.history.commits
        self.states[commits[-1].requested if commits else ""] = self.table.history

    @rule(rows=ROWS)
    def upsert(self, rows) -> None:
        self.table.upsert(rows)
        self.note()

    @rule(ids=GONE)
    def delete(self, ids) -> None:
        self.table.delete(ids)
        self.note()

    @rule(rows=ROWS)
    def overwrite(self, rows) -> None:
        self.table.overwrite(rows)
        self.note()

    @rule(commits=st.integers(1, 2))
    def restore(self, commits) -> None:
        self.table.restore(commits)
        self.note()

    @rule(what=st.sampled_from(["archive", "clean"]), keep=st.integers(1, 4))
    def keep_house(self, what, keep) -> None:
        getattr(self.table, what)(keep)

    @rule(name=st.sampled_from(sorted(RECIPES)), out=st.booleans())
    def an_embedder_fails_or_works_again(self, name, out) -> None:
        self.parts[name].embedder.inner.out_of_order = out

    @rule(name=st.sampled_from(sorted(RECIPES)))
    def one_is_synced_alone(self, name) -> None:
        self.sync_or_fail(self.parts[name])

    @rule(order=st.permutations(sorted(RECIPES)))
    def a_round(self, order) -> None:
        reports = self.round(order, disturbed=False)
        newest = self.table.history.commits
        working = {n for n in order if not self.parts[n].embedder.inner.out_of_order}
        # One that fails does not keep the others from their commits.
        assert working <= reports.keys()
        for name in working if newest else ():
            assert self.parts[name].store.open().frontier().newest == newest[-1].requested

    @rule(order=st.permutations(sorted(RECIPES)), at=MOMENTS, cut=st.integers(0, 2))
    def a_round_is_cut_off_within_a_sync(self, order, at, cut) -> None:
        at_moment(self.parts[order[cut]], at, cut_off)
        with suppress(PowerCut):
            self.round(order)
        self.undisturbed()

    @rule(order=st.permutations(sorted(RECIPES)), at=MOMENTS, of=st.integers(0, 2), rows=ROWS)
    def the_table_is_written_within_a_round(self, order, at, of, rows) -> None:
        at_moment(self.parts[order[of]], at, lambda: self.upsert_and_clean(rows))
        self.round(order)
        self.undisturbed()

    @rule(order=st.permutations(sorted(RECIPES)), at=MOMENTS, of=st.integers(0, 2))
    def the_table_is_restored_within_a_round(self, order, at, of) -> None:
        at_moment(self.parts[order[of]], at, lambda: self.restore(1))
        self.round(order)
        self.undisturbed()

    @rule(order=st.permutations(sorted(RECIPES)), at=MOMENTS)
    def one_is_synced_by_another_process_within_a_round(self, order, at) -> None:
        first, second = (self.parts[name] for name in order[:2])
        at_moment(first, at, lambda: self.sync_or_fail(second))
        self.round(order)
        self.undisturbed()

    def upsert_and_clean(self, rows) -> None:
        self.upsert(rows)
        self.table.clean(2)

    def undisturbed(self) -> None:
        for parts in self.parts.values():
            at_each_moment(parts, never)

    def round(self, order, *, disturbed=True) -> dict[str, SyncReport]:
        """One sync of each; the reports of those that did not fail."""
        table = [self.parts[name].table for name in order]
        reads = sum(t.reads for t in table)
        at = {name: self.at(name) for name in order}
        members = {n: ("the table", lambda n=n: self.parts[n]) for n in order}
        around, reports = Round(members), {}
        try:
            for name in order:
                with around.taking_part(self.parts[name]) as parts:
                    report = self.sync_or_fail(parts)
                if report:
                    reports[name] = report
        finally:
            around.close()
        follows = [r.action is Action.FOLLOW for r in reports.values()]
        if not disturbed and len(follows) == len(order) and all(follows):
            # As many reads as there were different states of the indexes.
            assert sum(t.reads for t in table) - reads == len(set(at.values()))
        return reports

    def at(self, name: str) -> frozenset[str]:
        index = self.parts[name].store.open()
        return frozenset(index.frontier().instants if index else ())

    def sync_or_fail(self, parts) -> SyncReport | None:
        with suppress(EmbedError):
            report = sync(parts)
            assert parts.embedder.inner.out_of_order is False or not report.embedded
            return report
        return None

    @invariant()
    def each_index_equals_its_table_as_of_its_frontier(self) -> None:
        for name, parts in self.parts.items():
            if index := parts.store.open():
                state = self.states[index.frontier().newest]
                assert contents(index) == built_of(name, state)

    def teardown(self) -> None:
        for parts in self.parts.values():
            parts.embedder.inner.out_of_order = False
        self.undisturbed()
        assert self.round(sorted(RECIPES), disturbed=False).keys() == RECIPES.keys()
        self.each_index_equals_its_table_as_of_its_frontier()


_built: dict[object, dict[str, Any]] = {}


def built_of(name: str, state: History) -> dict[str, Any]:
    """The content of an index built from nothing for a table in this state. Cached."""
    key = name, frozenset((row, repr(version.values)) for row, version in state.rows.items())
    if key not in _built:
        table = MemoryTable(RECIPES[name], SCHEMA)
        table.history = state
        _built[key] = contents(build(sample_parts(table, recipe=RECIPES[name])))
    return _built[key]


@pytest.mark.parametrize("part", range(2))
def test_several_indexes_follow_any_history(part) -> None:
    machine = seed(part)(type("SeveralIndexes", (SeveralIndexes,), {}))
    phases = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=250, stateful_step_count=14, deadline=None, phases=phases),
    )
