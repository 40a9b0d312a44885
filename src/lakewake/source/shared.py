"""The rows of a table as several recipes see them, read once.

A column, a text or a vector that several recipes use is read and passed on once. Each recipe's view
is a choice of columns: the same one that `view.row_view` makes for it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakewake.model.recipe import Held, Recipe
from lakewake.model.rows import T
from lakewake.source import columns, versions, view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The columns of `versions.changed`, which all recipes share.
ADDED = ("gone", "fresh", "former", "copies")


class Seen(Protocol):
    """How rows of a table are seen while their changes are read."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table, and fields in them, that have to be read, each once."""

    @property
    def where(self) -> str:
        """The condition that selects the rows; '': all are seen."""

    @property
    def selected_by(self) -> tuple[str, ...]:
        """The columns of the table that the condition names."""

    @property
    def wide(self) -> tuple[str, ...]:
        """The columns of the view whose values may be large."""

    @property
    def vector_bytes(self) -> int:
        """The bytes of a row's vectors."""

    @property
    def compared(self) -> Mapping[str, Sequence[str]]:
        """What shows that a row has changed, for `versions.changed`."""

    def of(self, rows: DataFrame) -> DataFrame:
        """The view of rows of some file groups. Hudi skips none of them: a path may mislead it."""


@dataclass(frozen=True)
class OwnView:
    """One recipe's view; the recipe is one on a day."""

    recipe: Recipe
    compared = versions.BY_CONTENT

    @property
    def where(self) -> str:
        return self.recipe.where

    @property
    def selected_by(self) -> tuple[str, ...]:
        return self.recipe.selected_by

    @property
    def columns(self) -> tuple[str, ...]:
        return self.recipe.columns

    @property
    def wide(self) -> tuple[str, ...]:
        return view.wide(self.recipe)

    @property
    def vector_bytes(self) -> int:
        return 4 * self.recipe.model.dimension if self.recipe.vector else 0

    def of(self, rows: DataFrame) -> DataFrame:
        return view.row_view(rows, self.recipe)


@dataclass(frozen=True)
class SharedView:
    """Several recipes' views of one table as one. All of them select the same rows, on a day."""

    recipes: tuple[Recipe, ...]

    @property
    def where(self) -> str:
        (where,) = {r.where for r in self.recipes}
        return where

    @property
    def selected_by(self) -> tuple[str, ...]:
        return self.recipes[0].selected_by

    @property
    def columns(self) -> tuple[str, ...]:
        return _distinct([c for r in self.recipes for c in r.columns])

    @property
    def wide(self) -> tuple[str, ...]:
        return (
            *map(columns.text, range(len(self._templates))),
            *map(_vector, range(len(self._vectors))),
            *map(columns.payload, range(len(self._payload))),
        )

    @property
    def vector_bytes(self) -> int:
        widths = {r.vector: 4 * r.model.dimension for r in self.recipes if r.vector}
        return sum(widths.values())

    @property
    def compared(self) -> dict[str, tuple[str, ...]]:
        return {_own("changed", n): self._hashes(n) for n in range(len(self.recipes))}

    @cached_property
    def _templates(self) -> tuple[tuple[int, tuple[tuple[str, str | None], ...]], ...]:
        return _distinct([(r.rendering, f.parts()) for r in self.recipes for f in r.fields])

    @cached_property
    def _vectors(self) -> tuple[str, ...]:
        return _distinct([r.vector for r in self.recipes if r.vector])

    @cached_property
    def _payload(self) -> tuple[Held, ...]:
        return _distinct([held for r in self.recipes for held in r.held])

    def _texts_of(self, recipe: Recipe) -> list[str]:
        made = [(recipe.rendering, f.parts()) for f in recipe.fields]
        return [columns.text(self._templates.index(one)) for one in made]

    def _vector_of(self, recipe: Recipe) -> list[str]:
        return [_vector(self._vectors.index(recipe.vector))] if recipe.vector else []

    def _payload_of(self, recipe: Recipe) -> list[str]:
        return [columns.payload(self._payload.index(held)) for held in recipe.held]

    @staticmethod
    def _hashes(n: int) -> tuple[str, ...]:
        return tuple(_own(name, n) for name in columns.HASHES)

    def of(self, rows: DataFrame) -> DataFrame:
        rows = view.selected(rows, self.where)
        types = {f.name: f.dataType for f in rows.schema.fields}
        fields = {(r.rendering, f.parts()): f for r in self.recipes for f in r.fields}
        raw = {one: view.filled_in(fields[one], types, one[0]) for one in self._templates}
        shown = rows.select(
            *view.identity_and_version(),
            *(view.readable(t).alias(columns.text(n)) for n, t in enumerate(raw.values())),
            *(
                view.any_unread([raw[r.rendering, f.parts()] for f in r.fields]).alias(
                    _own("unread", n)
                )
                for n, r in enumerate(self.recipes)
            ),
            *(view.vector_value(c).alias(_vector(n)) for n, c in enumerate(self._vectors)),
            *(
                view.payload_value(held, types).alias(columns.payload(n))
                for n, held in enumerate(self._payload)
            ),
        )
        hashes = []
        for n, recipe in enumerate(self.recipes):
            source, payload = self._hashes(n)
            made_from = self._vector_of(recipe) or self._texts_of(recipe)
            hashes += [
                view.source_hash(shown, made_from, vector=bool(recipe.vector)).alias(source),
                view.value_hash(shown, self._payload_of(recipe)).alias(payload),
            ]
        return shown.select("*", *hashes)

    def _own_names(self, recipe: Recipe) -> list[tuple[str, str]]:
        """The names of a recipe's columns: here, and in its own `row_view`."""
        n = self.recipes.index(recipe)
        own = [
            *((name, columns.text(at)) for at, name in enumerate(self._texts_of(recipe))),
            (_own("unread", n), "unread"),
            *((name, columns.VECTOR) for name in self._vector_of(recipe)),
            *((name, columns.payload(at)) for at, name in enumerate(self._payload_of(recipe))),
            *zip(self._hashes(n), columns.HASHES, strict=True),
        ]
        return [*((c, c) for c in (*columns.ID, *columns.VERSION)), *own, *((c, c) for c in ADDED)]

    def frame_of(self, recipe: Recipe, changed: DataFrame) -> DataFrame:
        """The changed rows as one recipe sees them."""
        from pyspark.sql import functions as F  # noqa: N812

        mark = _own("changed", self.recipes.index(recipe))
        if mark in changed.columns:
            changed = changed.where(F.col(mark))
        return changed.select(*(F.col(c).alias(own) for c, own in self._own_names(recipe)))

    def batches_of(self, recipe: Recipe, changed: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The same for rows that are collected. No value is copied, except if rows are left out."""
        mark, names = _own("changed", self.recipes.index(recipe)), self._own_names(recipe)
        if any(mark in b.schema.names for b in changed):
            changed = [b.filter(pc.fill_null(b.column(mark), False)) for b in changed]
        return [
            pa.RecordBatch.from_arrays([b.column(c) for c, _ in names], [own for _, own in names])
            for b in changed
        ]


def _own(name: str, n: int) -> str:
    """The name of a column that belongs to one recipe."""
    return f"{name}_of_{n}"


def _vector(n: int) -> str:
    return f"{columns.VECTOR}_{n}"


def _distinct(values: Sequence[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))
