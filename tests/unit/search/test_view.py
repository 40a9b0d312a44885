"""A view reads one version of an index, whatever is committed meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lakewake.api import Index
from lakewake.errors import IndexMissing, StoreError, StoreUnreachable
from lakewake.model.facets import Facet
from lakewake.model.options import SyncOptions
from lakewake.model.query import RowChunk
from lakewake.progress import Silent
from lakewake.search.view import ATTEMPTS, View
from lakewake.store.lance.store import LanceStore
from lakewake.sync import sync
from support.sampling import rid, sample_parts, values
from support.serving import DiskLake, served_index, wine_index

SMOKY = "smoky red with leather"


def seen(view: View) -> tuple[object, ...]:
    found = view.search(SMOKY, k=9)
    rows = view.rows([hit.row for hit in found.hits])
    return view.instant, view.counts(), found, rows, view.facets()


def test_a_view_stays_at_its_version() -> None:
    index, table = wine_index()
    with index.view() as view:
        before = seen(view)
        table.upsert({rid("smoky"): values("a later text", 99), rid("new"): values("another")})
        index.sync()
        assert seen(view) == before
    with index.view() as later:
        assert later.instant > view.instant
        assert later.counts() == (4, 4)
        assert later.rows([rid("smoky")])[rid("smoky")].text == "a later text"


def test_a_view_answers_as_the_index_does() -> None:
    index, _ = wine_index()
    with index.view() as view:
        assert view.search(SMOKY, mode="hybrid") == index.search(SMOKY, mode="hybrid")
        assert view.search(like=rid("smoky")) == index.search(like=rid("smoky"))
        assert view.facets() == index.facets() == (Facet("num", "number", None, 12, 30),)
        assert view.schema.field("num") is not None
        assert view.recipe.payload == ("num",)


def test_a_view_has_whole_rows_and_leaves_out_unknown_ones() -> None:
    index, _ = wine_index()
    with index.view() as view:
        found = view.rows([rid("nobody"), rid("smoky")])
    assert list(found) == [rid("smoky")]
    row = found[rid("smoky")]
    assert (row.row, row.text, row.payload) == (rid("smoky"), SMOKY, {"num": 30})
    assert row.chunks == (RowChunk("text", 0, SMOKY),)


def test_a_row_whose_vector_is_all_zeros_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    index, table = wine_index()
    embedder, embed = index.embedder, index.embedder.embed
    monkeypatch.setattr(embedder, "embed", lambda texts: np.zeros_like(embed(texts)))
    table.upsert({rid("zero"): values("zero")})
    index.sync()
    with index.view() as view:
        assert view.rows([rid("zero")])[rid("zero")].text == "zero"


def test_without_an_index_there_is_no_view() -> None:
    index = served_index(sample_parts().table)
    with pytest.raises(IndexMissing, match="there is no index 'sample' yet"), index.view():
        pass


def test_a_view_of_the_same_version_opens_nothing_again(tmp_path: Path) -> None:
    lake = DiskLake(tmp_path)
    lake.write()
    index = served_index(lake.table, LanceStore(str(tmp_path / "index"), "sample"))
    with index.view() as one, index.view() as two:
        assert one._reader is two._reader


def test_a_read_interrupted_by_a_rebuild_is_repeated_on_the_new_version(tmp_path: Path) -> None:
    lake = DiskLake(tmp_path)
    lake.write()
    index = served_index(lake.table, LanceStore(str(tmp_path / "index"), "sample"))
    generations = []

    def rebuild_and_search(view: View) -> list[str]:
        generations.append(view._reader.generation)
        if len(generations) == 1:
            sync(lake.parts, SyncOptions(rebuild=True))
        return [hit.key for hit in view.search(SMOKY, k=1).hits]

    assert index.with_view(rebuild_and_search) == ["smoky"]
    assert generations == [1, 2]


@pytest.mark.parametrize(
    ("error", "times"),
    [(StoreError("damaged"), ATTEMPTS), (StoreUnreachable("away"), 1), (IndexMissing("none"), 1)],
)
def test_only_damage_is_read_again_and_only_a_few_times(error: StoreError, times: int) -> None:
    index, _ = wine_index()
    views = []

    def fail(view: View) -> None:
        views.append(view)
        raise error

    with pytest.raises(type(error)):
        index.with_view(fail)
    assert len(views) == times


def test_threads_that_open_an_index_at_once_share_its_store(tmp_path: Path) -> None:
    lake = DiskLake(tmp_path)
    lake.write()
    served = served_index(lake.table)
    index = Index(served.settings, served._sessions, Silent())
    gate = threading.Barrier(4)

    def at_once() -> object:
        gate.wait()
        return index.parts

    with ThreadPoolExecutor(4) as pool:
        parts = [f.result() for f in [pool.submit(at_once) for _ in range(4)]]
    assert len({id(p) for p in parts}) == 1
