"""A retrain of an index in the lake: a new generation, in step, used only if it is not worse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from lakewake.errors import ConfigError
from lakewake.model.keep import Keep
from lakewake.model.recall import Retrained
from lakewake.progress import UNSEEN, Stage
from lakewake.store.hudi import generations, recall, retrain, writer
from lakewake.store.hudi.cells import Cells, trained
from lakewake.store.hudi.retrain import Retraining
from lakewake.store.hudi.store import HudiStore
from lakewake.testing.samples import frontier
from support.recall_contract import (
    PER_TOPIC,
    RECIPE,
    chunks,
    ids,
    reader_of,
    searching,
    shares,
    topics,
)
from support.watched import Watching

pytestmark = pytest.mark.spark
TOPICS, PROMISED = 12, 0.8
EVERY = topics(0, TOPICS)


def poor(sample: np.ndarray, count: int, metric: str, stage: Stage = UNSEEN) -> Cells:
    """Cells that have nothing to do with the topics."""
    made = trained(sample, count, metric)
    rng = np.random.default_rng(3)
    spread = 0.05 * rng.normal(size=made.centroids.shape)
    return replace(made, centroids=(made.centroids.mean(axis=0) + spread).astype(np.float32))


@pytest.fixture(autouse=True)
def mean_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst tenth of 24 questions are two, which is left to chance."""
    monkeypatch.setattr("lakewake.model.recall.WORST_TENTH", 0.0)


@pytest.fixture
def opened(tmp_path: Path, spark: SparkSession) -> Callable[[], HudiStore]:
    """Opens the same index, as another process would."""

    def open() -> HudiStore:
        return HudiStore(
            str(tmp_path / "index"),
            "wines",
            lambda: spark,
            ann_min_chunks=0,
            cell_chunks=50,
            recall=PROMISED,
        )

    return open


def built(store: HudiStore) -> HudiStore:
    store.create(RECIPE, chunks(0, TOPICS), frontier(1), after=0)
    store.maintain()
    return store


@pytest.fixture
def worn(opened: Callable[[], HudiStore], monkeypatch: pytest.MonkeyPatch) -> HudiStore:
    """An index whose cells do not fit what it holds."""
    with monkeypatch.context() as patch:
        patch.setattr(writer, "trained", poor)
        return built(opened())


def contents(store: HudiStore) -> dict[str, tuple[str, bytes]]:
    """`_id` → text and vector of every chunk."""
    found = {}
    for batch in reader_of(store).scan(["_id", "_text", "_vector"]):
        vectors = batch["_vector"].flatten().to_numpy().reshape(batch.num_rows, -1)
        names, texts = batch["_id"].to_pylist(), batch["_text"].to_pylist()
        found |= {n: (t, v.tobytes()) for n, t, v in zip(names, texts, vectors, strict=True)}
    return found


def held_by(topic: int) -> dict[str, tuple[str, bytes]]:
    """The contents of `chunks(topic, 1)`."""
    pairs = zip(ids(topic, 1), topics(topic, 1), strict=True)
    return {name: (name, vector.tobytes()) for name, vector in pairs}


def tables(store: HudiStore) -> list[str]:
    """The folders of all tables of the index, in use or not."""
    return sorted(n for n in store._location.names() if n.startswith("g") and "-" in n)


def recall_of(store: HudiStore) -> float:
    return float(shares(reader_of(store), EVERY[::25]).mean())


def test_better_cells_replace_worse_ones(worn: HudiStore) -> None:
    before, how = contents(worn), searching(worn)
    ended = worn.retrain()
    assert ended.switched, ended
    after = searching(worn)
    assert reader_of(worn).generation == 2
    assert contents(worn) == before
    assert reader_of(worn).frontier().to_json() == frontier(1).to_json()
    assert after.retrained == ended
    # Reading all cells, for 0 probes.
    read = how.probes / how.partitions if how.probes else 1.0
    assert 0 < after.probes / after.partitions < read
    assert recall_of(worn) >= PROMISED
    # The words were counted before the switch, and the next probe is not due yet.
    assert worn.maintain() == {}
    assert len(tables(worn)) == 2, "the former generation is kept for searches as of an instant"


def test_cells_that_are_worse_are_removed(
    opened: Callable[[], HudiStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = built(opened())
    how = searching(store)
    monkeypatch.setattr(writer, "trained", poor)
    ended = store.retrain()
    assert not ended.switched
    assert "stay as they are" in ended.in_words
    after = opened()
    assert reader_of(after).generation == 1
    assert replace(searching(after), retrained=None) == how
    assert searching(after).retrained == ended
    assert len(tables(after)) == 1


@pytest.fixture
def strict(worn: HudiStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, retrain small indexes too, however few cells are read."""
    monkeypatch.setattr(recall, "MIN_CELLS", 8)
    monkeypatch.setattr(recall, "READ_AT_MOST", 0.001)


@pytest.mark.matrix
@pytest.mark.usefixtures("strict")
def test_upkeep_retrains_cells_that_wore_out(worn: HudiStore) -> None:
    assert worn.maintain() == {"retrained": 1}
    assert reader_of(worn).generation == 2


@pytest.mark.matrix
@pytest.mark.usefixtures("strict")
def test_upkeep_tries_again_only_after_half_of_the_index_has_changed(
    worn: HudiStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(retrain, "no_worse", lambda *_: None)
        assert worn.maintain() == {"retrains_refused": 1}
    assert worn.maintain() == {}
    worn.commit(chunks(TOPICS, 1), frontier(1), frontier(2))
    assert not worn.maintain().keys() & {"retrained", "retrains_refused"}
    worn.commit(chunks(TOPICS + 1, TOPICS + 2), frontier(2), frontier(3))
    assert worn.maintain().keys() & {"retrained", "retrains_refused"}


def committing(monkeypatch: pytest.MonkeyPatch, step: str, commit: Callable[[], object]) -> None:
    """Commit as another process, once, when a retrain has reached a step."""
    original = getattr(Retraining, step)
    todo = [commit]

    def hooked(self: Retraining, *given: Any) -> Any:
        while todo:
            todo.pop()()
        return original(self, *given)

    monkeypatch.setattr(Retraining, step, hooked)


def test_what_others_commit_meanwhile_is_in_the_new_generation(
    worn: HudiStore, opened: Callable[[], HudiStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = opened()
    before = contents(worn)

    def first() -> None:
        other.commit(chunks(TOPICS, 1, deletes=tuple(ids(1, 1))), frontier(1), frontier(2))
        other.maintain()

    def second() -> None:
        # Topic 0 gets other vectors, so its chunks are in other cells now.
        other.commit(chunks(0, 1, deletes=tuple(ids(2, 1))), frontier(2), frontier(3))

    committing(monkeypatch, "_in_step", first)
    committing(monkeypatch, "_switch", second)
    ended = worn.retrain()
    assert ended.switched, ended
    now = opened()
    assert reader_of(now).generation == 2
    assert reader_of(now).frontier().to_json() == frontier(3).to_json()
    kept = {n: v for n, v in before.items() if n not in {*ids(1, 1), *ids(2, 1)}}
    assert contents(now) == kept | held_by(TOPICS) | held_by(0)
    # The other process notices, and goes on in the new generation.
    other.open()
    other.commit(chunks(TOPICS + 1, 1), frontier(3), frontier(4))
    assert len(contents(now)) == len(kept) + 2 * PER_TOPIC


@pytest.mark.matrix
@pytest.mark.parametrize("step", ["_copy", "_in_step", "_compared", "_switch", "claim"])
def test_a_retrain_that_dies_leaves_the_old_generation_serving(
    step: str,
    worn: HudiStore,
    opened: Callable[[], HudiStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = contents(worn)
    place = generations.Generations if step == "claim" else Retraining

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # A killed process removes nothing.
        patch.setattr(retrain, "_remove", lambda *_: None)
        patch.setattr(place, step, die)
        with pytest.raises(KeyboardInterrupt):
            worn.retrain()
    survivor = opened()
    assert contents(survivor) == before
    assert reader_of(survivor).generation == 1
    survivor.commit(chunks(TOPICS, 1), frontier(1), frontier(2))
    assert len(contents(survivor)) == len(before) + PER_TOPIC
    monkeypatch.setattr(generations, "FORGOTTEN", -1.0)
    survivor.maintain()
    assert len(tables(survivor)) == 1


@pytest.mark.matrix
def test_an_index_that_is_restored_meanwhile_is_not_switched(
    worn: HudiStore,
    opened: Callable[[], HudiStore],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, other, index = contents(worn), opened(), worn.open()
    assert index is not None
    table = index.table
    call = f"path => '{table.path}', {{}} => '{table.instant}'"
    spark.sql(f"CALL create_savepoint({call.format('commit_time')})").collect()
    worn.commit(chunks(0, 1, deletes=tuple(ids(1, 1))), frontier(1), frontier(2))

    def restore() -> None:
        spark.sql(f"CALL rollback_to_savepoint({call.format('instant_time')})").collect()
        # Other commits follow, so that the newest instant is again newer than the copy.
        other.commit(chunks(TOPICS, 1), frontier(1), frontier(3))

    committing(monkeypatch, "_in_step", restore)
    ended = worn.retrain()
    assert not ended.switched
    assert "was restored" in ended.why
    now = opened()
    assert reader_of(now).generation == 1
    assert contents(now) == before | held_by(TOPICS)
    assert len(tables(now)) == 1


@pytest.mark.matrix
def test_of_two_retrains_at_once_one_is_used(
    worn: HudiStore, opened: Callable[[], HudiStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, other, ends = contents(worn), opened(), list[Retrained]()
    committing(monkeypatch, "_switch", lambda: ends.append(other.retrain()))
    lost = worn.retrain()
    assert [end.switched for end in ends] == [True]
    assert not lost.switched
    assert "rebuilt as generation 2" in lost.why
    assert contents(opened()) == before
    assert len(tables(worn)) == 2


@pytest.mark.matrix
def test_states_from_before_a_retrain_are_kept_as_long_as_others(
    worn: HudiStore, opened: Callable[[], HudiStore]
) -> None:
    before = contents(worn)
    worn.commit(chunks(TOPICS, 1), frontier(1), frontier(2))
    assert worn.retrain().switched
    worn.commit(chunks(TOPICS + 1, 1), frontier(2), frontier(3))
    worn.maintain()
    counted = [worn.as_of(max(frontier(n).instants)).counts()[1] for n in (1, 2, 3)]
    first = len(before)
    assert counted == [first, first + PER_TOPIC, first + 2 * PER_TOPIC]
    hasty = opened()
    hasty._writer = replace(hasty._writer, keep=Keep(1))
    assert hasty.maintain() == {"generations_removed": 1}
    with pytest.raises(ConfigError, match="is not kept as of"):
        hasty.as_of(max(frontier(1).instants))


@pytest.mark.matrix
def test_a_rebuilt_index_is_searched_exactly_until_it_is_probed(
    opened: Callable[[], HudiStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = built(opened())
    assert searching(store).mode == "approximate"
    monkeypatch.setattr(writer, "trained", poor)
    # Left behind by a retrain that lost the race for this generation.
    left = store._location.read("searching-g1.json") or b""
    store._location.replace("searching-g2.json", left)
    store.create(RECIPE, chunks(0, TOPICS), frontier(1), after=1)
    assert "not probed yet" in searching(store).why
    assert recall_of(store) == 1.0
    store.maintain()
    assert recall_of(store) >= PROMISED


def test_upkeep_and_a_retrain_show_their_steps(tmp_path: Path, spark: SparkSession) -> None:
    seen = Watching()
    store = HudiStore(
        str(tmp_path / "index"),
        "wines",
        lambda: spark,
        ann_min_chunks=0,
        cell_chunks=50,
        recall=PROMISED,
        reporter=seen,
    )
    built(store)
    store.retrain()
    names = {shown.name for shown in seen.steps}
    assert {"reshape cells", "compact files", "measure the recall"} <= names
    assert {"copy into new cells", "compare the cells"} <= names
    # Once for the build, and once for the retrain.
    assert [shown.is_complete for shown in seen.named("train cells")] == [True, True]
    assert all(shown.ended for shown in seen.steps)
