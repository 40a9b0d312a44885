"""How a row becomes a text: nulls, lists, structs, and the way that earlier indexes keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewake.config.settings import IndexSettings, ModelSettings
from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import StoreUnreachable
from lakewake.model.recipe import RENDERING, ModelIdentity, Recipe, TextField
from lakewake.progress import Silent
from lakewake.source.rendering import render
from lakewake.store.memory import MemoryStore
from lakewake.store.registry import open_store
from lakewake.sync import sync
from lakewake.sync.wiring import rendering_for, wire
from support import ROOT
from support.sampling import HASHING, rid, sample_parts, values

SHORT = "{title} ({year}). {tags}"
FULL = {"title": "Chianti", "year": 2019, "tags": ["dry", "oak"]}


def text(template: str, row: dict[str, Any], rendering: int = RENDERING) -> str | None:
    return render(TextField("text", template), row, rendering)


@pytest.mark.parametrize(
    ("template", "row", "expected"),
    [
        (SHORT, FULL, "Chianti (2019). dry, oak"),
        (SHORT, {**FULL, "year": None}, "Chianti. dry, oak"),
        (SHORT, {**FULL, "tags": []}, "Chianti (2019)"),
        (SHORT, {**FULL, "tags": [None, " "]}, "Chianti (2019)"),
        (SHORT, {**FULL, "title": None}, "(2019). dry, oak"),
        (SHORT, {**FULL, "title": " ", "year": None}, "dry, oak"),
        (SHORT, {"title": None, "year": None, "tags": None}, None),
        ("Title: {a}. Country: {b}.", {"a": None, "b": "Italy"}, "Country: Italy."),
        ("Title: {a}. Country: {b}.", {"a": "x", "b": None}, "Title: x"),
        ("{a}, {b}, {c}", {"a": "x", "b": None, "c": "z"}, "x, z"),
        ("{a}\n{b}\n{c}", {"a": None, "b": None, "c": "z"}, "z"),
        ("{{{a}}} by {b}", {"a": "x", "b": None}, "{x}"),
        ('"{a}" by {b}', {"a": None, "b": "y"}, "by y"),
        ("{c.name} in {c.home.city}", {"c": {"name": "Bo", "home": None}}, "Bo"),
        ("{c.name} in {c.home.city}", {"c": {"name": "Bo", "home": {"city": "Rom"}}}, "Bo in Rom"),
        ("{a} {c.name}", {"a": "x", "c": None}, "x"),
        ("{c}", {"c": {"name": "Bo", "age": None, "tags": ["a", None, "b"]}}, "Bo, a, b"),
        ("{a}", {"a": [["x", None], [], ["y"]]}, "x, y"),
    ],
)
def test_nulls_leave_no_punctuation_and_lists_are_joined(
    template: str, row: dict[str, Any], expected: str | None
) -> None:
    assert text(template, row) == expected


def test_the_table_in_the_documentation_is_what_happens() -> None:
    docs = (ROOT / "docs" / "config.md").read_text()
    section = docs.partition(f'| `"{SHORT}"` | text |')[2].partition("\n\n")[0]
    shown = [line.split("`")[-2] for line in section.splitlines() if line.startswith("| `")]
    rows = [FULL, {**FULL, "year": None}, {**FULL, "tags": []}, {**FULL, "title": None}]
    assert shown == [text(SHORT, row) for row in rows]


literals = st.text('ab .,(){}[]"\n:', max_size=5).map(
    lambda t: t.replace("{", "{{").replace("}", "}}")
)


@given(st.lists(literals, min_size=3, max_size=3), st.text("xy z", max_size=3).map("v".__add__))
def test_without_nulls_both_renderings_write_the_same(between: list[str], value: str) -> None:
    template = f"{between[0]}{{a}}{between[1]}{{b}}{between[2]}"
    row = {"a": value, "b": 7}
    assert text(template, row, 1) == text(template, row, 2)


def test_the_first_rendering_stays_as_it_was() -> None:
    row = {"title": None, "year": 2019, "tags": None}
    assert text(SHORT, row, 1) == " (2019). "
    first = Recipe(ModelIdentity("hashing", "test", 8), (TextField("text", SHORT),))
    assert "rendering" not in first.as_dict()
    assert Recipe.from_dict(first.as_dict()) == first
    second = replace(first, rendering=2)
    assert Recipe.from_dict(second.as_dict()) == second
    assert first.differs_from(second) == {"rendering": (1, 2)}
    # As earlier versions computed it.
    known = "fdac5719"
    assert first.fingerprint[:8] == known


def test_an_index_keeps_its_rendering_until_its_template_changes() -> None:
    store = MemoryStore()
    fields = (TextField("text", "{txt}"),)
    assert rendering_for(fields, store) == RENDERING
    parts = replace(sample_parts(), store=store)
    parts.table.upsert({rid("a"): values("x")})
    sync(parts)
    assert parts.recipe.fields == fields
    assert rendering_for(fields, store) == 1
    assert rendering_for((TextField("text", "{txt}!"),), store) == RENDERING


def test_a_store_that_does_not_answer_does_not_change_the_rendering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()

    def away() -> None:
        raise StoreUnreachable("the store does not answer")

    monkeypatch.setattr(store, "open", away)
    with pytest.raises(StoreUnreachable):
        rendering_for((TextField("text", "{txt}"),), store)


def test_payload_paths_are_stored_in_their_columns() -> None:
    model = HashingEmbedder(ModelSettings("hashing", "hashing", dimension=8)).identity
    recipe = Recipe(model, payload=("c.home.city", "title", "c.country"))
    assert recipe.held == (("c", ("home.city", "country")), ("title", ()))
    assert recipe.payload_columns == ("c", "title")


def test_wired_parts_have_the_recipe_of_their_index_so_nothing_is_embedded_again(
    tmp_path: Path,
) -> None:
    address, fields = f"lance://{tmp_path}/index", (TextField("text", "{txt}"),)
    settings = IndexSettings(
        "sample", "table", address, fields=fields, payload=("num",), model=HASHING
    )

    def wired() -> Recipe:
        return wire(settings, HashingEmbedder(HASHING), lambda: None, Silent()).recipe

    assert wired().rendering == RENDERING
    parts = sample_parts(store=open_store(address, "sample"))
    parts.table.upsert({rid("a"): values("x")})
    sync(parts)
    assert parts.recipe.rendering == 1
    assert wired() == parts.recipe
