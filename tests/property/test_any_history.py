"""The central promise, for any history and any cut-off, on a table and a store in memory."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lakewake.model.plan import Action
from lakewake.sync import sync
from lakewake.verify import verify
from oracle import built_from_nothing, indexed
from sampling import rid, sample_parts, values

KEYS = st.sampled_from([rid(k, p) for k in ("a", "b", "c") for p in ("x", "y")])
TEXTS = st.sampled_from(["one", "two", "three", "", None, "one two"])
ROWS = st.dictionaries(KEYS, st.builds(values, TEXTS, st.integers(0, 2)), min_size=1, max_size=4)


class PowerCut(Exception):
    """The process ends here."""


class AnyHistory(RuleBasedStateMachine):
    """Rows are written, deleted, overwritten, restored; syncs run and are cut off anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = sample_parts()
        self.table = self.parts.table
        self.in_step = False

    @rule(rows=ROWS)
    def upsert(self, rows) -> None:
        self.table.upsert(rows)
        self.in_step = False

    @rule(ids=st.sets(KEYS, min_size=1))
    def delete(self, ids) -> None:
        self.table.delete(ids)
        self.in_step = False

    @rule(rows=ROWS)
    def overwrite(self, rows) -> None:
        self.table.overwrite(rows)
        self.in_step = False

    @rule()
    def cluster(self) -> None:
        self.table.cluster()
        self.in_step = False

    @rule(commits=st.integers(1, 3))
    def restore(self, commits) -> None:
        self.table.restore(commits)
        self.in_step = False

    @rule(keep=st.integers(1, 4))
    def archive(self, keep) -> None:
        self.table.archive(keep)

    @rule(keep=st.integers(1, 4))
    def clean(self, keep) -> None:
        self.table.clean(keep)

    @rule(where=st.sampled_from(["before", "after"]))
    def sync_cut_off(self, where) -> None:
        def cut() -> None:
            raise PowerCut

        setattr(self.parts.store, f"fail_{where}_commit", cut)
        try:
            sync(self.parts)
        except PowerCut:
            pass
        finally:
            setattr(self.parts.store, f"fail_{where}_commit", lambda: None)
        self.in_step = False

    @rule()
    def another_syncer_comes_first(self) -> None:
        rival = sample_parts(self.table, self.parts.store, embeddings=self.parts.embeddings)

        def race() -> None:
            self.parts.store.fail_before_commit = lambda: None
            sync(rival)

        self.parts.store.fail_before_commit = race
        sync(self.parts)
        self.parts.store.fail_before_commit = lambda: None
        self.in_step = False

    @rule()
    def sync_undisturbed(self) -> None:
        reader = self.parts.store.open()
        known = {chunk["_text"] for chunk, _ in indexed(self.parts).values()} if reader else set()
        known |= set(self.parts.embedder.received)
        self.parts.embedder.received.clear()
        report = sync(self.parts)
        embedded = list(self.parts.embedder.received)
        assert report.embedded == len(embedded) == len(set(embedded))
        assert not known & set(embedded)
        self.in_step = True

    @invariant()
    def index_equals_a_build_once_synced(self) -> None:
        if self.in_step:
            assert indexed(self.parts) == built_from_nothing(self.parts)

    @precondition(lambda self: self.in_step)
    @rule()
    def nothing_is_left_and_verify_agrees(self) -> None:
        assert sync(self.parts).action is Action.NOTHING
        assert verify(self.parts).agrees


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=300, stateful_step_count=20, deadline=None)
