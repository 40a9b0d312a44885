"""An index that is limited to some rows shows nothing of the others."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakewake.api.hot import Hot
from lakewake.errors import (
    ConfigError,
    FilterError,
    IndexDamaged,
    IndexMissing,
    IndexStale,
    TableError,
    TableMissing,
)
from lakewake.model.recipe import Recipe, TextField
from lakewake.model.rows import RowId
from lakewake.source.memory import MemoryTable
from lakewake.store.lance.store import LanceStore
from support.sampling import SCHEMA, sample_parts, sample_recipe
from support.serving import WINES, served_index, wine_index

WHERE = "num < 25"
SEEN = {"fresh", "sweet"}


def limited(where: Any = WHERE) -> Any:
    return wine_index()[0].limited(where)


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
@pytest.mark.parametrize("where", [None, "num > 0", "num = 30 OR num = 12", "NOT num = 12"])
def test_a_search_shows_only_the_rows_of_the_limit(mode: str, where: str | None) -> None:
    found = limited().search("smoky red with leather fresh sweet", k=9, mode=mode, where=where)
    shown = {hit.key for hit in found.hits}
    assert shown == {"fresh", "sweet"} - ({"fresh"} if where and "NOT" in where else set()) - (
        {"sweet"} if where and "OR" in where else set()
    )


def test_counts_facets_rows_and_status_are_of_the_limit() -> None:
    index = limited()
    with index.view() as view:
        assert view.counts() == (2, 2)
        assert list(view.rows([RowId("p", "smoky"), RowId("p", "fresh")])) == [RowId("p", "fresh")]
    assert [(facet.min, facet.max) for facet in index.facets()] == [(12, 20)]
    report = index.status()
    assert (report.rows, report.chunks, report.table, report.last_sync) == (2, 2, "", None)
    assert (index.history(), index.commits()) == ((), ())


def test_a_hidden_row_is_as_unknown_as_one_that_does_not_exist() -> None:
    index, facts = limited(), []
    for key in ("smoky", "nobody"):
        with pytest.raises(ConfigError) as refused:
            index.search(like=RowId("p", key))
        facts.append((refused.value.fact.replace(key, "KEY"), refused.value.hint))
    assert facts[0] == facts[1]


def test_a_limit_on_a_column_that_is_not_there_shows_nothing_and_is_logged(caplog: Any) -> None:
    index = limited("tenant = 'acme'")
    with caplog.at_level(logging.ERROR, "lakewake.rights"):
        assert index.search("wine", k=9).hits == ()
        assert index.search("wine", mode="keyword").hits == ()
    assert index.status().rows == 0
    assert [facet.max for facet in index.facets()] == [None]
    assert index.recommend("wine").hits == ()
    assert len(caplog.records) == 1
    assert "tenant" in caplog.records[0].getMessage()


def test_the_index_itself_still_shows_every_row_and_loads_nothing_twice() -> None:
    index, _ = wine_index()
    few = index.limited({"num": {"<": 0}})
    assert few.search("wine", k=9).hits == ()
    assert len(index.search("wine", k=9).hits) == 3
    assert few.parts is index.parts
    assert index.facets() != few.facets()


def test_a_limit_of_a_limited_index_only_narrows_it() -> None:
    index = limited().limited("num > 15")
    assert [hit.key for hit in index.search("wine", k=9).hits] == ["sweet"]
    assert limited().limited("num > 0 OR num < 0").status().rows == 2
    assert [(f.min, f.max) for f in limited().limited("num > 0").facets()] == [(12, 20)]


def test_a_right_to_one_text_of_a_row_leaves_out_its_other_texts() -> None:
    recipe = Recipe(
        sample_recipe().model, (TextField("a", "{txt}"), TextField("b", "{num}")), payload=("num",)
    )
    table = MemoryTable(recipe, SCHEMA)
    table.upsert(WINES)
    index = served_index(table)
    index.__dict__["parts"] = sample_parts(table, recipe=recipe)
    index.sync()
    few = index.limited("_field = 'a'")
    row = RowId("p", "smoky")
    by_like = few.search(like=row, k=9).hits
    by_text = few.search("smoky red with leather", k=9).hits
    # The text that may not be seen would change the vector of the row.
    assert [hit.score for hit in by_like] == [hit.score for hit in by_text if hit.row != row]
    with few.view() as view:
        assert [chunk.field for chunk in view.rows([row])[row].chunks] == ["a"]


def test_errors_name_no_files_and_the_log_has_them(caplog: Any) -> None:
    index, table = wine_index()
    few, file = index.limited(WHERE), "/lake/tenant=zeta/1.parquet"

    def fails(*_: Any, **__: Any) -> Any:
        raise IndexDamaged(f"{file} is gone", hint=f"look at {file}")

    def no_table(*_: Any, **__: Any) -> Any:
        raise TableMissing(f"there is no {file}", hint=f"make {file}")

    def view() -> None:
        with few.view():
            pass

    table.look = no_table  # type: ignore[method-assign]
    with pytest.raises(TableMissing) as refused:
        few.status()
    assert (file in refused.value.fact + refused.value.hint, file in caplog.text) == (False, True)
    asked: dict[str, Any] = {"search": lambda: few.search("wine"), "view": view}
    asked |= {"facets": few.facets, "recommend": lambda: few.recommend("wine")}
    index.parts.store.open = fails  # type: ignore[method-assign]
    for name, ask in asked.items():
        caplog.clear()
        with pytest.raises(IndexDamaged, match="the index 'sample' cannot be read") as damaged:
            ask()
        assert file not in damaged.value.hint, name
        assert len(caplog.records) == 1
        assert file in caplog.text
    with pytest.raises(IndexDamaged, match=file):
        index.search("wine")


def test_a_scan_that_fails_names_no_files_either() -> None:
    index, table = wine_index()
    index.settings = replace(index.settings, fallback="scan")

    def unreadable(*_: Any, **__: Any) -> Any:
        raise TableError("part tenant=zeta cannot be read")

    table.scan = unreadable  # type: ignore[method-assign]
    table.upsert({RowId("p", "new"): {"txt": "wine", "num": 1}})
    for some, shown in ((index, True), (index.limited(WHERE), False)):
        with pytest.raises(TableError) as refused:
            some.search("wine", max_age=0)
        assert ("zeta" in refused.value.fact) is shown


def test_an_index_that_is_missing_or_late_says_so_to_everybody() -> None:
    table = MemoryTable(sample_recipe(), SCHEMA)
    index = served_index(table)
    with pytest.raises(IndexMissing, match="sync"):
        index.limited(WHERE).search("wine")
    table.upsert(WINES)
    index.sync()
    table.upsert(WINES)
    with pytest.raises(IndexStale, match="behind its table"):
        index.limited(WHERE).search("wine", max_age=0)


def test_a_limited_index_writes_nothing_and_shows_no_earlier_state() -> None:
    index = limited()
    for write in (index.sync, index.verify, index.drop, index.plan, index.to_dataframe, index.warm):
        with pytest.raises(ConfigError, match="limited to some rows") as refused:
            write()
        assert refused.value.hint
    with pytest.raises(ConfigError, match="earlier states"):
        index.search("wine", as_of=index.search("wine").instant)


def test_the_limit_holds_in_memory_too_and_nothing_is_held_twice(tmp_path: Path) -> None:
    index, _ = wine_index(store=LanceStore(str(tmp_path), "sample"))
    index.settings = replace(index.settings, store=f"lance://{tmp_path}")
    index._hot = Hot(index.settings)
    assert index.warm()
    few = index.limited(WHERE)
    assert few._hot is index._hot
    for where in (None, "num = 30", "num > 0"):
        found = few.search("smoky red with leather", k=9, where=where)
        assert {hit.key for hit in found.hits} == (set() if where == "num = 30" else SEEN)
    with few.view() as view:
        assert view.counts() == (2, 2)
        assert list(view.rows([RowId("p", "smoky")])) == []
    with pytest.raises(ConfigError, match="holds nothing of row"):
        few.search(like=RowId("p", "smoky"))
    with pytest.raises(ConfigError, match="earlier states"), few.view(as_of="20990101000000000"):
        pass
    nothing = index.limited("tenant = 'acme'")
    for mode in ("vector", "keyword", "hybrid"):
        assert nothing.search("red", k=9, mode=mode, where="num > 0").hits == ()
    assert nothing.facets()
    assert nothing.status().rows == 0
    few.close()
    assert len(index.search("wine", k=9).hits) == 3
    index.close()


def test_an_invalid_limit_is_refused() -> None:
    with pytest.raises(FilterError):
        limited("num <")
