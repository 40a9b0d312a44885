"""One version of an index in memory: a base, less what is gone, and what came since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewake.lazy import lazy
from lakewake.model.where import Where
from lakewake.store import Piece, StoreReader
from lakewake.store.hot.base import Base, positions_of, read_piece
from lakewake.store.hot.pieces import pieces_of
from lakewake.store.hot.rows import (
    HeldRows,
    as_indices,
    held_rows,
    joined,
    one_batch,
    same_content,
    shown_schema,
)
from lakewake.store.passing import columns_of, passing
from lakewake.store.ranking import APART, SPARE, best_positions, closeness

#: How many filters a version remembers the passing chunks of.
FILTERS = 16
#: The largest share of the cells to read; beyond it, comparing all that pass is as quick.
MOST = 1 / 3
#: A probe asks for ten chunks. A search for `n` times this many chunks reads `n` times the cells.
DEEP = 50
#: A filter that is unrelated to the question lets its usual share of the nearest chunks pass. If
#: the best `LEAST` that pass are among more than `AHEAD` times as many chunks as that share
#: implies, the filter excludes the neighbourhood: the nearest that pass may be in any cell.
AHEAD, LEAST = 3, 10


class Found(NamedTuple):
    """Chunks by their positions, best first, and how near each is.

    Attributes:
        exhausted: there are no others.
    """

    positions: np.ndarray
    near: np.ndarray
    exhausted: bool


class Loose(NamedTuple):
    """A piece that the base does not know.

    Attributes:
        numbers: the numbers of its chunks in the piece.
        same: the position in the base of the same chunk with the same content, or -1.
    """

    numbers: np.ndarray
    rows: HeldRows
    same: np.ndarray


@dataclass(frozen=True)
class Held:
    """One version of an index in memory. Positions count the base first, then what came since.

    Attributes:
        there: which chunks of the base are in this version; None: all.
        since: the chunks that came since.
        loose: name of a piece → what was read of it, for the next version.
    """

    base: Base
    there: np.ndarray | None
    since: HeldRows
    loose: Mapping[str, Loose] = field(default_factory=dict)
    _passing: OrderedDict[Where, np.ndarray] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def gone(self) -> int:
        """How many chunks of the base are not in this version."""
        return 0 if self.there is None else int(len(self.there) - self.there.sum())

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self.base.nbytes + self.since.nbytes

    def nearest(self, question: np.ndarray, wanted: int, where: Where | None) -> Found:
        """The chunks nearest to a question, at least `wanted` of them if there are as many."""
        shown = self.there if where is None else self.passing(where)
        size = len(self.base.rows)
        old, new = (None, None) if shown is None else (shown[:size], shown[size:])
        found = self._in_base(question, wanted, old)
        if not len(self.since):
            return found
        later = np.arange(len(self.since)) if new is None or where is None else np.flatnonzero(new)
        more = _compared(self.base.metric, self.since, question, wanted, later)
        return _best([found, Found(more.positions + size, more.near, more.exhausted)])

    def passing(self, where: Where) -> np.ndarray:
        """Which positions pass a filter and are in this version."""
        with self._lock:
            if where in self._passing:
                self._passing.move_to_end(where)
                return self._passing[where]
        names = sorted(columns_of(where))
        parts = [
            np.asarray(passing(where, dict(zip(names, (c[n] for n in names), strict=True)), len(c)))
            for c in (self.base.rows.columns, self.since.columns)
        ]
        if self.there is not None:
            parts[0] = parts[0] & self.there
        mask: np.ndarray = np.concatenate(parts)
        with self._lock:
            self._passing[where] = mask
            while len(self._passing) > FILTERS:
                self._passing.popitem(last=False)
        return mask

    def can_filter(self, where: Where) -> bool:
        """Whether it holds the columns that a filter looks at."""
        return columns_of(where) <= {*self.base.rows.columns.schema.names}

    def columns(self, positions: np.ndarray, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """What a hit shows of the chunks at these positions."""
        size, base, since = len(self.base.rows), self.base.rows.columns, self.since.columns
        if names:
            base, since = base.select(list(names)), since.select(list(names))
        old = positions < size
        if old.all():
            return base.take(as_indices(positions))
        order = np.argsort(~old, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        parts = [
            base.take(as_indices(positions[old])),
            since.take(as_indices(positions[~old] - size)),
        ]
        return one_batch(parts, base.schema).take(as_indices(back))

    def similarity(self, positions: np.ndarray, question: np.ndarray) -> np.ndarray:
        """The cosine of each chunk with a question; 0 if a vector has no direction."""
        size, out = len(self.base.rows), np.zeros(len(positions))
        for inside, rows, first in (
            (positions < size, self.base.rows, 0),
            (positions >= size, self.since, size),
        ):
            vectors = rows.vectors[positions[inside] - first]
            out[inside] = np.nan_to_num(closeness("cosine", vectors, question))
        return out

    def _in_base(self, question: np.ndarray, wanted: int, shown: np.ndarray | None) -> Found:
        base = self.base
        if base.cells is None or base.probed is None or not question.any():
            return self._one_by_one(question, wanted, shown)
        size, probes = len(base.rows), base.probed.effort.probes
        matching = size if shown is None else int(np.count_nonzero(shown))
        # With few that pass, comparing these takes no longer than reading the usual cells.
        few = matching * len(base.cells) <= probes * size
        probes = int(probes * size / max(matching, 1)) * max(1, wanted // DEEP)
        if few or probes > len(base.cells) * MOST:
            return self._one_by_one(question, wanted, shown)
        positions, near = base.in_cells(question, probes)
        if shown is not None:
            positions, near = _not_excluded(
                positions, near, shown[positions], wanted, matching / size
            )
        if len(positions) < wanted:
            return self._one_by_one(question, wanted, shown)
        best = positions[best_positions(near, wanted + SPARE)]
        return _ranked(base.metric, base.rows, question, best, exhausted=False)

    def _one_by_one(self, question: np.ndarray, wanted: int, shown: np.ndarray | None) -> Found:
        among = None if shown is None else np.flatnonzero(shown)
        return _compared(self.base.metric, self.base.rows, question, wanted, among)


def _not_excluded(
    positions: np.ndarray, near: np.ndarray, passing: np.ndarray, wanted: int, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """Those that pass; none if those around the question do not, because then cells mislead."""
    found = near[passing]
    enough = max(wanted, LEAST)
    if len(found) < enough:
        return positions[:0], near[:0]
    last = np.partition(found, len(found) - enough)[len(found) - enough]
    if (near >= last).sum() > AHEAD * enough / share:
        return positions[:0], near[:0]
    return positions[passing], found


def _compared(
    metric: str, rows: HeldRows, question: np.ndarray, wanted: int, among: np.ndarray | None
) -> Found:
    """The nearest of these chunks, certainly: enough are taken that rounding cannot matter."""
    near = rows.closeness(metric, question, among)
    asked = wanted + SPARE
    while True:
        best = best_positions(near, asked)
        found = best if among is None else among[best]
        ranked = _ranked(metric, rows, question, found, exhausted=len(found) >= len(near))
        if ranked.exhausted or len(ranked.near) < len(found):
            # Those that cannot be compared come last, so the others are all here.
            return ranked._replace(exhausted=True)
        longest = float(rows.lengths[found].max(initial=0) + np.linalg.norm(question))
        scale = 1.0 if metric == "cosine" else longest**2
        if ranked.near[wanted - 1] - ranked.near[-1] > APART * scale:
            return ranked
        asked *= 4


def _ranked(
    metric: str, rows: HeldRows, question: np.ndarray, found: np.ndarray, *, exhausted: bool
) -> Found:
    """Chunks by how near they truly are; those that cannot be compared are left out."""
    near = closeness(metric, rows.vectors[found], question)
    order = np.argsort(-near, kind="stable")
    order = order[~np.isnan(near[order])]
    return Found(found[order], near[order], exhausted)


def _best(found: Sequence[Found]) -> Found:
    found = [one for one in found if len(one.positions)] or list(found[:1])
    if len(found) == 1:
        return found[0]
    positions = np.concatenate([one.positions for one in found])
    near = np.concatenate([one.near for one in found])
    order = np.argsort(-near, kind="stable")
    return Found(positions[order], near[order], all(one.exhausted for one in found))


def follow(base: Base, reader: StoreReader, former: Held | None = None) -> Held:
    """The version of `reader`, from a base of an earlier or later one."""
    there = np.zeros(len(base.rows), bool)
    schema, dimension = shown_schema(reader.schema()), reader.recipe().model.dimension
    since, loose = [held_rows((), schema, dimension)], {}
    for piece in pieces_of(reader):
        mark = base.marks.get(piece.name)
        if mark and (positions := positions_of(base, mark, piece.live())) is not None:
            there[positions] = True
            continue
        known = former.loose.get(piece.name) if former else None
        one = _live(known, piece) if known else _compare(base, piece, reader)
        there[one.same[one.same >= 0]] = True
        since.append(one.rows.take(np.flatnonzero(one.same < 0)))
        if piece.name:
            loose[piece.name] = one
    return Held(base, None if there.all() else there, joined(since), loose)


def _live(known: Loose, piece: Piece) -> Loose:
    """What is live now of a piece that was read for another version."""
    kept = np.flatnonzero(np.isin(known.numbers, piece.live()))
    if len(kept) == len(known.numbers):
        return known
    return Loose(known.numbers[kept], known.rows.take(kept), known.same[kept])


def _compare(base: Base, piece: Piece, reader: StoreReader) -> Loose:
    """Read a piece, and find its chunks in the base: upkeep moves chunks without changing them."""
    rows, numbers = read_piece(piece, reader)
    found = pc.index_in(rows.columns["_id"], value_set=base.rows.columns["_id"])
    places = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    known = np.flatnonzero(places >= 0)
    at = places[known]
    same = (base.rows.vectors[at] == rows.vectors[known]).all(axis=1)
    same &= same_content(
        base.rows.columns.take(as_indices(at)), rows.columns.take(as_indices(known))
    )
    places[known[~same]] = -1
    return Loose(numbers, rows, places)


@dataclass(frozen=True)
class Version:
    """Which version of an index it is."""

    generation: int
    frontier: str

    @classmethod
    def of(cls, reader: StoreReader) -> Version:
        """That of a reader. A commit or a repair makes another; upkeep does not."""
        return cls(reader.generation, reader.frontier().to_json())

    @lazy
    def text(self) -> str:
        """The same as a text."""
        return f"{self.generation} {self.frontier}"
