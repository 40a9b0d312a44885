"""The facets of those rows that a question and its filter leave, for further filters."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakewake.model.query import Mode, Question
from lakewake.model.where import And, Where, leaves
from lakewake.search.facets import Countable, compute_facets
from lakewake.search.run import Ranking, best_rows
from lakewake.search.where import check_columns

if TYPE_CHECKING:
    from lakewake.embed import Embedder
    from lakewake.model.facets import Facet
    from lakewake.model.frontier import Frontier
    from lakewake.model.recipe import Recipe
    from lakewake.model.rows import RowId
    from lakewake.store import StoreReader

#: A search ranks rows and has no natural end, so the facets of a question count this many of them.
COUNTED = 200
#: How many answers are kept for one version of an index.
KEPT = 64
#: A version and a filter → what of the version passes it.
Narrow = Callable[["StoreReader", Where], "StoreReader"]


@dataclass(frozen=True)
class Narrowing:
    """What the rows have to fit.

    Attributes:
        text: only the best `COUNTED` rows for this text; None: all.
        where: only the rows that pass this filter.
    """

    text: str | None = None
    where: Where | None = None
    mode: Mode = Mode.VECTOR

    def without(self, column: str) -> Narrowing:
        """The same without the conditions on one column alone: they must not hide its values."""
        return replace(self, where=without_column(self.where, column))


def without_column(where: Where | None, column: str) -> Where | None:
    """The filter without those of its parts that are about this column alone."""
    if where is None or {leaf.column for leaf in leaves(where)} == {column}:
        return None
    if not isinstance(where, And):
        return where
    kept = tuple(p for p in where.parts if {leaf.column for leaf in leaves(p)} != {column})
    return And(kept) if len(kept) > 1 else kept[0]


def narrowed_facets(
    reader: StoreReader,
    embedder: Embedder,
    asked: Narrowing,
    narrow: Narrow,
    ranking: Ranking,
    index: str,
) -> tuple[Facet, ...]:
    """One facet per payload column. Each counts the rows that pass all *other* columns' filters.

    Raises:
        ConfigError: the question is not valid; FilterError if its filter is not.
        EmbedError: the model failed.
    """
    if asked.where is not None:
        check_columns(asked.where, reader.schema())
    facets = compute_facets(_rows(reader, embedder, asked, narrow, ranking, index))
    others: dict[str, tuple[Narrowing, list[str]]] = {}
    for column in (facet.column for facet in facets):
        one = asked.without(column)
        if one != asked:
            others.setdefault(repr(one.where), (one, []))[1].append(column)
    found = {facet.column: facet for facet in facets}
    for one, columns in others.values():
        rows = _rows(reader, embedder, one, narrow, ranking, index)
        counted = compute_facets(_Columns(rows, columns))
        found |= {facet.column: facet for facet in counted if facet.column in columns}
    return tuple(found.values())


def _rows(
    reader: StoreReader,
    embedder: Embedder,
    asked: Narrowing,
    narrow: Narrow,
    ranking: Ranking,
    index: str,
) -> Countable:
    """What of a version fits the question."""
    if asked.text is None:
        return reader if asked.where is None else narrow(reader, asked.where)
    question = Question(index, asked.text, mode=asked.mode, k=COUNTED)
    rows = best_rows(reader, embedder, question, asked.where, ranking)
    return _Chosen(reader, [hit.row for hit in rows])


class _Chosen:
    """The chosen rows of a version."""

    def __init__(self, reader: StoreReader, rows: Sequence[RowId]) -> None:
        self._reader, self._rows = reader, rows

    def schema(self) -> pa.Schema:
        return self._reader.schema()

    def recipe(self) -> Recipe:
        return self._reader.recipe()

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._reader.chunks(self._rows, columns) if self._rows else iter(())


class _Columns:
    """What of a version is counted: some of its payload columns."""

    def __init__(self, rows: Countable, columns: Sequence[str]) -> None:
        held = rows.recipe().payload
        # A column of the payload, or a field in one.
        of = [tuple(p for p in held if c == p or c.startswith(f"{p}.")) for c in columns]
        self._rows, self._columns = rows, tuple(dict.fromkeys(p for some in of for p in some))

    def schema(self) -> pa.Schema:
        return self._rows.schema()

    def recipe(self) -> Recipe:
        return replace(self._rows.recipe(), payload=self._columns)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._rows.scan(columns)


class NarrowedCache:
    """Keeps the last answers for the version that was asked for last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version: tuple[int, Frontier] | None = None
        self._kept: OrderedDict[str, tuple[Facet, ...]] = OrderedDict()

    def of(
        self, reader: StoreReader, asked: Narrowing, count: Callable[[], tuple[Facet, ...]]
    ) -> tuple[Facet, ...]:
        """The facets for these rows; counted once while others ask for the same few."""
        # By its text: as values, 1 and true are equal, but they are not the same filter.
        version, key = (reader.generation, reader.frontier()), repr(asked)
        with self._lock:
            if self._version != version:
                self._version = version
                self._kept.clear()
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = count()
        with self._lock:
            if self._version == version:
                self._kept[key] = found
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return found
