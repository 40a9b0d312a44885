"""An index over a memory table, through the public API and without Spark."""

from __future__ import annotations

from pathlib import Path

from lakewake.api import Index, Sessions
from lakewake.config.settings import IndexSettings
from lakewake.model.recipe import Recipe
from lakewake.progress import Silent
from lakewake.source.memory import MemoryTable
from lakewake.store.registry import open_store
from support.sampling import sample_parts


class Heard(Silent):
    """A reporter that keeps its messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def follow(
    store: str,
    table: MemoryTable | None = None,
    *,
    freshness: float | None = None,
    reporter: Heard | None = None,
    recipe: Recipe | None = None,
    home: Path = Path(),
) -> Index:
    """An index named `sample` at a store's address."""
    settings = IndexSettings("sample", "table", store, freshness=freshness)
    index = Index(settings, Sessions({}, None, False), reporter or Silent(), home)
    index.parts = sample_parts(table, open_store(store, "sample"), recipe=recipe)
    return index


def table_of(index: Index) -> MemoryTable:
    """The table that the index follows."""
    table = index.parts.table
    assert isinstance(table, MemoryTable)
    return table
