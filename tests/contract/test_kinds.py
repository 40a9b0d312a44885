"""The kinds of approximate index: each keeps the recall, and a store refuses those it lacks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakewake.errors import ConfigError
from lakewake.model.ann import Ann
from lakewake.model.chunks import index_schema
from lakewake.model.query import Query
from lakewake.model.recall import RECALL
from lakewake.store.lance.kinds import KINDS, kind_for
from lakewake.store.lance.recall import coverage_of
from lakewake.store.options import StoreOptions
from lakewake.store.registry import open_store
from lakewake.testing.samples import batch, chunk, frontier, recipe
from support.executing import LocalExecutors
from support.fragments import ROWS, build, dataset_of, opened, recall_of, rows, vectors


@pytest.fixture(scope="module")
def table():
    return rows()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("helped", [False, True], ids=["alone", "by executors"])
def test_every_kind_keeps_the_recall_by_probes_that_upkeep_measured(
    tmp_path: Path, table, kind: str, helped: bool
):
    store = opened(tmp_path, LocalExecutors() if helped else None, kind)
    build(store, table)
    store.maintain()
    how = store.open().searching()
    assert (how.mode, how.kind, coverage_of(dataset_of(store)).kind) == ("approximate", kind, kind)
    assert how.recall_mean >= RECALL
    assert how.probes
    assert how.questions
    assert recall_of(store) >= RECALL
    assert store.maintain() == {}


def test_another_kind_is_made_in_the_next_upkeep_and_flat_removes_it(tmp_path: Path, table):
    build(opened(tmp_path, None), table)
    for kind in ("auto", "ivf_flat", "ivf_rq"):
        store = opened(tmp_path, None, kind)
        assert store.maintain()["chunks_indexed"] == ROWS
        assert store.open().searching().kind == kind.replace("auto", "ivf_rq")
        if kind == "auto":
            assert opened(tmp_path, None, "ivf_rq").maintain() == {}
    flat = opened(tmp_path, None, "flat")
    how = flat.open().searching()
    assert (how.mode, how.why, how.kind) == ("exact", "its kind is flat", "")
    found = flat.open().search(Query(vectors()[7], 1))
    assert found["_key"].to_pylist() == ["7"]
    assert flat.maintain() == {"approximate_dropped": 1}
    assert coverage_of(dataset_of(flat)).kind == ""
    assert flat.maintain() == {}


@pytest.mark.parametrize(
    ("wanted", "dimension", "kind"),
    [
        ("auto", 384, "ivf_rq"),
        ("auto", 100, "ivf_hnsw_sq"),
        ("ivf_rq", 8, "ivf_rq"),
        ("ivf_sq", 100, "ivf_sq"),
    ],
)
def test_the_kind_depends_on_the_dimension_if_the_store_may_choose(wanted, dimension, kind):
    assert kind_for(wanted, dimension) == kind


def test_a_kind_that_does_not_fit_the_dimension_is_refused_before_anything_is_written(tmp_path):
    store = opened(tmp_path, None, "ivf_rq")
    with pytest.raises(ConfigError, match="multiple of 8, and this index has 12") as refused:
        store.create(recipe(dimension=12), batch(chunk("a")), frontier(1), after=0)
    assert 'kind = "auto"' in refused.value.hint
    assert store.open() is None
    assert [*tmp_path.glob("*.lance")] == []


def test_a_changed_kind_that_does_not_fit_is_refused_before_a_commit(tmp_path: Path):
    made = recipe(dimension=12)
    schema = index_schema(made, pa.schema([]))
    rows = [chunk(str(n), str(n), _vector=[float(n)] * 12) for n in range(3)]
    opened(tmp_path, None).create(made, batch(*rows, schema=schema), frontier(1), after=0)
    store = opened(tmp_path, None, "ivf_rq")
    new = batch(chunk("new", _vector=[1.0] * 12), schema=schema)
    with pytest.raises(ConfigError, match="multiple of 8"):
        store.commit(new, frontier(1), frontier(2))
    with pytest.raises(ConfigError, match="multiple of 8"), store.staging():
        pass
    assert store.open().counts() == (3, 3)
    assert store.open().frontier() == frontier(1)


@pytest.mark.parametrize(
    ("url", "kind", "valid"),
    [
        ("lance://{}", "hnsw", "auto, flat, ivf_rq, ivf_sq, ivf_flat, ivf_hnsw_sq"),
        ("lance://{}", "ivf_pq", "auto, flat, ivf_rq, ivf_sq, ivf_flat, ivf_hnsw_sq"),
        ("hudi://{}", "ivf_rq", "auto, flat, ivf_flat"),
        ("qdrant+local://{}", "ivf_flat", "auto, flat, hnsw"),
        ("memory://{}", "hnsw", "auto, flat"),
    ],
)
def test_a_kind_that_a_store_does_not_have_is_refused_with_those_it_has(
    tmp_path: Path, url: str, kind: str, valid: str
):
    with pytest.raises(ConfigError, match=f"no approximate index of kind '{kind}'") as refused:
        open_store(url.format(tmp_path / "index"), "wines", StoreOptions(ann=Ann(kind)))
    assert refused.value.hint.endswith(f"are {valid}")


@pytest.mark.parametrize("url", ["lance://{}", "hudi://{}", "qdrant+local://{}", "memory://{}"])
@pytest.mark.parametrize("kind", ["auto", "flat"])
def test_every_store_chooses_itself_or_compares_every_vector(tmp_path: Path, url: str, kind: str):
    store = open_store(url.format(tmp_path / "index"), "wines", StoreOptions(ann=Ann(kind)))
    assert store.open() is None
