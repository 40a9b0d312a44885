"""What a person sees of the upkeep of an index while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from lance.progress import IndexProgress

from lakewake.progress import Counted
from lakewake.store.lance.store import LanceStore
from lakewake.store.lance.training import counted
from lakewake.testing.samples import batch, chunk, frontier, recipe
from support.fragments import ROWS, build, rows
from support.watched import Watching


def test_upkeep_shows_each_step_and_counts_what_has_a_known_number(tmp_path: Path) -> None:
    seen = Watching()
    store = LanceStore(str(tmp_path), "wines", ann_min_chunks=1000, reporter=seen)
    build(store, rows())
    store.maintain()
    names = [shown.name for shown in seen.steps]
    assert [n for n in names if n in ("join small files", "count words", "index the vectors")] == [
        "join small files",
        "count words",
        "index the vectors",
    ]
    assert [shown.is_complete for shown in seen.named("read texts")] == [True]
    assert [shown.is_complete for shown in seen.named("write partitions")] == [True]
    # Lance's total includes the checkpoint row, which has no vector.
    assert [(s.done, s.total) for s in seen.named("assign chunks")] == [(ROWS, ROWS + 1)]
    assert all(shown.ended for shown in seen.steps)
    # Lance may stop training before the last round.
    assert [shown.total for shown in seen.named("train partitions")] == [None]


def test_upkeep_does_the_same_if_nobody_watches(tmp_path: Path) -> None:
    rows = [chunk(f"k{n}", f"text {n}") for n in range(30)]
    done = []
    for name, reporter in (("watched", Watching()), ("alone", None)):
        store = LanceStore(str(tmp_path), name, words_min_chunks=1, reporter=reporter)
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        done.append(store.maintain())
    assert done[0] == done[1]


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (IndexProgress("progress", "shuffle", 5, 9, "rows"), Counted("assign chunks", 5, 9)),
        (IndexProgress("start", "train_quantizer"), Counted("train codes", 0, None)),
        (
            IndexProgress("progress", "train_ivf", 3, 50, "iterations"),
            Counted("train partitions", 3, None),
        ),
        (IndexProgress("start", "a_new_stage", 0, None), Counted("a new stage", 0, None)),
    ],
)
def test_lances_progress_is_shown_in_our_words(event: IndexProgress, shown: Counted) -> None:
    assert counted(event) == shown
