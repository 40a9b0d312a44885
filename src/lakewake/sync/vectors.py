"""Where the vectors of chunks come from: known ones, the embedder, the table's own column."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakewake.embed import LOT, Embedder, lot_of, tokens_of
from lakewake.embed.cache import VectorCache
from lakewake.errors import StoreError, StoreUnreachable, TextRefused
from lakewake.model.recipe import Recipe
from lakewake.model.rows import RowBatch
from lakewake.model.weights import cuts
from lakewake.plan.patch import Patch
from lakewake.progress import Stage
from lakewake.store import StoreReader
from lakewake.sync.tally import Tally

#: Texts per call of an embedder that does not ask for more.
EMBED_TEXTS = LOT
#: Characters per call, for long texts that the model takes whole.
EMBED_CHARACTERS = 4_000_000
#: Characters per text of an embedder that asks for many: those of a long paragraph.
LONG_TEXT = 512


@dataclass(frozen=True)
class VectorSources:
    """Where a known vector may come from.

    Attributes:
        index: an index whose vectors may be copied; None: none.
        doubted: hashes of texts that are embedded again even if their vectors are known.
        trusted: rows whose hashes the index has are left alone.
        replaced: the index is being replaced, perhaps because it is damaged. The vector cache,
            which checks its entries, is asked first, and unreadable vectors are made again.
    """

    index: StoreReader | None
    vector_cache: VectorCache
    doubted: frozenset[str] = frozenset()
    trusted: bool = True
    replaced: bool = False

    def vectors(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """The known vectors among these texts."""
        wanted = set(hashes) - self.doubted
        sources = [self._copied, self.vector_cache.get]
        found: dict[str, np.ndarray] = {}
        for source in reversed(sources) if self.replaced else sources:
            if rest := wanted - found.keys():
                found |= source(rest)
        return found

    def kept(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        """Vectors that another sync has put into the vector cache since."""
        return self.vector_cache.get(set(hashes) - self.doubted)

    def _copied(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        try:
            return self.index.vectors(hashes) if self.index else {}
        except StoreError as error:
            # Texts of a damaged index are embedded again. An unreachable index may come back.
            if not self.replaced or isinstance(error, StoreUnreachable):
                raise
            return {}


class TextVectors:
    """Gives texts their vectors: known ones are reused, the rest is embedded.

    Attributes:
        refused: the reasons, by text hash, why the embedder refused texts. A text that was refused
            in one batch of rows is not tried again in the next.
    """

    def __init__(self, embedder: Embedder, sources: VectorSources, tally: Tally) -> None:
        self.refused: dict[str, str] = {}
        self._embedder = embedder
        self._sources = sources
        self._tally = tally

    @property
    def lot(self) -> int:
        """How many texts one call of the embedder gets."""
        asked = lot_of(self._embedder)
        return asked if asked > LOT else EMBED_TEXTS

    def get(
        self, texts: Mapping[str, str], rows: int, stage: Stage
    ) -> tuple[dict[str, np.ndarray], set[str]]:
        """Vectors by text hash, without refused texts, and the hashes that are new.

        Args:
            texts: the texts of a batch of rows, by hash.
            rows: how many rows `stage` advances by.
        """
        texts = {h: t for h, t in texts.items() if h not in self.refused}
        known = self._sources.vectors(texts.keys())
        todo = sorted(texts.keys() - known.keys(), key=lambda h: (len(texts[h]), h))
        done, shown, new = 0, 0, set[str]()
        for some in _in_any_order(todo, texts, self.lot):
            kept = self._sources.kept(some)
            fresh = {h: texts[h] for h in some if h not in kept}
            known |= kept | (self._embed(fresh) if fresh else {})
            new |= fresh.keys()
            done += len(some)
            stage.advance(rows * done // len(todo) - shown)
            shown = rows * done // len(todo)
        stage.advance(rows - shown)
        return known, new

    def _embed(self, texts: Mapping[str, str]) -> dict[str, np.ndarray]:
        hashes = list(texts)
        before = tokens_of(self._embedder)
        try:
            vectors = self._embedder.embed(list(texts.values()))
        except TextRefused as refusal:
            self.refused |= {hashes[n]: why for n, why in refusal.reasons.items()}
            if refusal.vectors is None:
                return self._embed({h: t for h, t in texts.items() if h not in self.refused})
            vectors = refusal.vectors
        self._tally.embedded += len(texts)
        self._tally.tokens += tokens_of(self._embedder) - before
        made = {h: v for h, v in zip(hashes, vectors, strict=True) if h not in self.refused}
        self._sources.vector_cache.put(made)
        return made


def _in_any_order(hashes: list[str], texts: Mapping[str, str], most: int) -> list[list[str]]:
    """Hashes in groups that are embedded at once, in random order.

    Another sync may be embedding the same texts. In the same order, both would embed all of them.
    In random order, each finds most of the vectors that the other has kept.
    """
    sizes = np.array([len(texts[h]) for h in hashes])
    characters = max(EMBED_CHARACTERS, most * LONG_TEXT)
    groups = [hashes[n : n + count] for n, count in cuts(sizes, most, characters)]
    random.shuffle(groups)
    return groups


def column_vectors(rows: RowBatch, patch: Patch, recipe: Recipe) -> np.ndarray:
    """The vectors from the table's own vector column; none of them may be unusable."""
    wanted = _column(rows, [n for n, _ in patch.upserts])
    vectors: np.ndarray = _floats(wanted).reshape(-1, recipe.model.dimension)
    return vectors


@dataclass(frozen=True)
class Unusable:
    """Rows of a batch (by position) whose vectors cannot be compared with others."""

    other_length: Mapping[int, str]
    not_finite: Mapping[int, str]

    @property
    def reasons(self) -> dict[int, str]:
        """Why each row is unusable."""
        return {**self.other_length, **self.not_finite}


def unusable_vectors(rows: RowBatch, patch: Patch, recipe: Recipe) -> Unusable:
    """Which of the rows that a patch writes have a vector that cannot be compared."""
    positions, dimension = np.array([n for n, _ in patch.upserts], np.int64), recipe.model.dimension
    wanted = _column(rows, positions.tolist())
    lengths = wanted.value_lengths().to_numpy(zero_copy_only=False)
    whole = lengths == dimension
    numbers = _floats(wanted)
    if not whole.all():
        numbers = numbers[np.repeat(whole, lengths)]
    matrix = numbers.reshape(-1, dimension)
    broken = positions[whole][~np.isfinite(matrix).all(axis=1)].tolist()
    odd = zip(positions[~whole].tolist(), lengths[~whole].tolist(), strict=True)
    return Unusable(
        {n: f"its vector has {length} numbers, not {dimension}" for n, length in odd},
        dict.fromkeys(broken, "its vector has nulls, NaN or infinite numbers"),
    )


def _column(rows: RowBatch, positions: Sequence[int]) -> pa.ListArray:
    assert rows.vectors is not None
    return rows.vectors.take(pa.array(positions, pa.int32()))


def _floats(vectors: pa.ListArray) -> np.ndarray:
    """All numbers of these vectors as the index holds them; nulls are NaN."""
    numbers: np.ndarray = vectors.flatten().to_numpy(zero_copy_only=False)
    # Numbers beyond the range of a float32 become infinite.
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)
