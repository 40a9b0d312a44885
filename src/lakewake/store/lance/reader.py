"""Reading one pinned version of a Lance index."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from lakewake.errors import StoreError, StoreUnreachable
from lakewake.lazy import lazy
from lakewake.model.chunks import PAGE_ID, ScanParts, StoredChunk
from lakewake.model.frontier import Frontier
from lakewake.model.pages import ReadPages
from lakewake.model.query import Query, Words
from lakewake.model.recall import Effort, Searching
from lakewake.model.recipe import Recipe
from lakewake.model.rows import RowId
from lakewake.model.where import Compare
from lakewake.net.s3 import HINT
from lakewake.store import Piece
from lakewake.store.filters import to_sql
from lakewake.store.held import STORED, chunks_by_row, of_rows, vectors_by_hash, with_identity
from lakewake.store.hints import rebuild
from lakewake.store.lance.recall import Coverage, asked, coverage_of
from lakewake.store.lance.words import LanceWords, WordFiles
from lakewake.store.location import S3
from lakewake.store.ranking import (
    HIDDEN,
    check_query,
    count_rows,
    first_rows,
    nearest_rows,
    rank,
    settled,
)
from lakewake.store.recall import Asking, choose, how_searched

#: What Lance raises. Its errors have no types of their own beyond these.
FOREIGN = (OSError, ValueError, RuntimeError, NotImplementedError, pa.ArrowException)
#: How they begin if a request to an object store failed.
REQUEST_FAILED = "Generic S3 error"
#: The column is null except in the checkpoint row, so reading it costs next to nothing.
IS_CHUNK = "_checkpoint IS NULL"
#: The frontier is a JSON object; its pages, in rows of their own, are JSON arrays.
IS_CHECKPOINT = "_checkpoint LIKE '{%'"
FORMAT = b"1"

#: Values in one IN list.
LIST_LENGTH = 10_000
#: How chunks are read: this many at a time, fewer if they are large. Lance holds several batches
#: before it splits them by size: with 8,192 texts of 70 KB in a batch it took 1.3 GB.
SCANNED = {"batch_size": 1024, "batch_size_bytes": 16 * 1024 * 1024}
EXACT = {"use_index": False}
#: For how many seconds a probe is not repeated: on a local index, and on one in S3.
NEAR, FAR = 5.0, 60.0
#: How the tags that pin a version begin.
PIN = "lakewake-pin-"
# Otherwise the statistics of an index list every coordinate of its centroids, with a warning.
os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")


class LanceReader:
    """One version of one generation.

    Args:
        words: the files of counted words; without them, words are counted at the first search.

    Raises:
        StoreError: the dataset is not an index of ours, or cannot be read.
    """

    def __init__(
        self,
        dataset: LanceDataset,
        generation: int,
        name: str,
        asking: Asking | None = None,
        words: WordFiles | None = None,
    ) -> None:
        self._asking = asking or Asking()
        self._dataset = dataset
        self._word_files = words or WordFiles(None, "")
        self._generation = generation
        self._name = name
        self._recipe = read_recipe(dataset, name)
        self._sound_until = -math.inf
        self.checkpoint = read_checkpoint(dataset, name)
        self._frontier = _parse_frontier(self.checkpoint, name, self._read_pages)

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def is_service(self) -> bool:
        return False

    def frontier(self) -> Frontier:
        return self._frontier

    def recipe(self) -> Recipe:
        return self._recipe

    def schema(self) -> pa.Schema:
        return self._dataset.schema.remove_metadata()

    def counts(self) -> tuple[int, int]:
        return self._counts

    @lazy
    def _counts(self) -> tuple[int, int]:
        with reading(self._dataset, self._name):
            if len(self._recipe.fields) <= 1:
                # Count first chunks, one per row: holds nothing the size of the index in memory.
                first = f"_chunk = 0 AND {IS_CHUNK}"
                rows, chunks = (self._dataset.count_rows(f) for f in (first, IS_CHUNK))
            else:
                columns = ["_partition", "_key"]
                identities = self._dataset.to_table(columns=columns, filter=IS_CHUNK)
                rows, chunks = count_rows(identities), identities.num_rows
            beside = self._dataset.count_rows() - chunks
            checkpoints = 1 if beside == 1 else self._dataset.count_rows(IS_CHECKPOINT)
        if checkpoints != 1:
            raise _not_one_checkpoint(self._dataset, checkpoints, self._name)
        return rows, chunks

    def probe(self) -> None:
        """Check all files, and now and then read a little as a search does."""
        from lakewake.store.lance.probe import check_files, read_a_little

        with reading(self._dataset, self._name):
            check_files(self._dataset, self._name)
            now = time.monotonic()
            if now < self._sound_until:
                return
            metric = self._recipe.metric if self._coverage.partitions else ""
        read_a_little(self._dataset, self._name, metric=metric)
        self._sound_until = now + (FAR if self._dataset.uri.startswith(S3) else NEAR)

    def existing(self, rows: Collection[RowId]) -> dict[RowId, tuple[StoredChunk, ...]]:
        wanted = set(rows)
        return chunks_by_row(self._having("_key", {r.key for r in wanted}, STORED), wanted)

    def chunks(self, rows: Collection[RowId], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        keys = {row.key for row in rows}
        return of_rows(self._having("_key", keys, with_identity(columns)), rows, columns)

    def vectors(self, hashes: Collection[str]) -> dict[str, np.ndarray]:
        batches = self._having("_hash", set(hashes), ["_hash", "_vector"])
        return vectors_by_hash(batches, self._recipe.model.dimension)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with reading(self._dataset, self._name):
            yield from self._dataset.to_batches(columns=list(columns), filter=IS_CHUNK, **SCANNED)

    def scan_parts(self, columns: Sequence[str], at_most: int | None = None) -> ScanParts:
        from lakewake.store.lance.parts import ScanPart, ranges

        with reading(self._dataset, self._name):
            sizes = {f.fragment_id: f.count_rows() for f in self._dataset.get_fragments()}
        names = tuple(columns)
        parts = tuple(
            ScanPart(self._dataset, n, names, self._name, rows)
            for n, size in sizes.items()
            for rows in ranges(size, at_most)
        )
        schema = pa.schema([self.schema().field(c) for c in names])
        return ScanParts(schema, parts, sum(sizes.values()))

    def pieces(self) -> Sequence[Piece]:
        from lakewake.store.lance.pieces import pieces_of

        return pieces_of(self._dataset, self._name)

    def sample(self, n: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # The checkpoint row and its pages may be in the sample, and are left out.
        size = min(n + 1 + len(self._frontier.pages), self._dataset.count_rows())
        with reading(self._dataset, self._name):
            found = self._dataset.sample(size, columns=[*columns, "_checkpoint"])
        chunks = found.filter(pc.is_null(found["_checkpoint"])).select(list(columns))
        yield from chunks.slice(0, n).to_batches()

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep upkeep from dropping this version, however long it is read."""
        pin = f"{PIN}{uuid4().hex}"
        with suppress(*FOREIGN):
            # If nothing can be written, nothing is dropped either.
            self._dataset.tags.create(pin, self._dataset.version)
        try:
            yield
        finally:
            with suppress(*FOREIGN):
                self._dataset.tags.delete(pin)

    def search(self, query: Query) -> pa.Table:
        vector = check_query(query, self._recipe.model.dimension)
        where = None if query.where is None else to_sql(query.where, self.schema())
        self._asking.recent.append(vector)
        metric = self._recipe.metric
        return nearest_rows(
            query.limit,
            None if query.exact else self._effort(where is not None),
            lambda wanted, effort: self._nearest(vector, wanted, where, effort),
            lambda found: first_rows(rank(found, metric, vector), query.limit),
            lambda found, nearest: settled(found, nearest, metric, vector),
        )

    def searching(self) -> Searching:
        return how_searched(self._coverage, self._asking)

    def _effort(self, filtered: bool) -> Effort | None:
        """How thorough a vector search has to be; None means exact."""
        return choose(self._coverage, self._asking, filtered=filtered)[0]

    def keyword(self, words: Words) -> pa.Table:
        where = None if words.where is None else to_sql(words.where, self.schema())
        with reading(self._dataset, self._name):
            return self._words.search(words, where, self._shown)

    def languages(self) -> dict[str, str]:
        return self._languages

    @lazy
    def _languages(self) -> dict[str, str]:
        names = [field.name for field in self._recipe.fields]
        of_field = {n: to_sql(Compare("_field", "=", n), self.schema()) for n in names}
        with reading(self._dataset, self._name):
            # One field: all texts are its own.
            return {
                name: self._words.language(where if len(names) > 1 else None)
                for name, where in of_field.items()
            }

    def _read_pages(self, names: Collection[str]) -> dict[str, str]:
        ids = [f"{PAGE_ID}{name}" for name in sorted(names)]
        with reading(self._dataset, self._name):
            found = self._dataset.to_table(
                columns=["_id", "_checkpoint"], filter=in_list("_id", ids)
            )
        ids, found_texts = (column.to_pylist() for column in found.columns)
        texts = {i.removeprefix(PAGE_ID): t for i, t in zip(ids, found_texts, strict=True)}
        if lost := set(names) - texts.keys():
            raise StoreError(
                f"{self._dataset.uri} lacks {len(lost)} pages of its checkpoint",
                hint=rebuild(self._name),
            )
        return texts

    @lazy
    def _words(self) -> LanceWords:
        return LanceWords(self._dataset, self._word_files)

    @lazy
    def _shown(self) -> list[str]:
        return [c for c in self._dataset.schema.names if c not in HIDDEN]

    @lazy
    def _coverage(self) -> Coverage:
        with reading(self._dataset, self._name):
            return coverage_of(self._dataset)

    def _nearest(
        self, vector: np.ndarray, k: int, where: str | None, effort: Effort | None
    ) -> pa.Table:
        # Arrow takes a list directly; for a NumPy array it would import more of NumPy.
        vector_asked = pa.array(vector.tolist(), pa.float32())
        nearest = {"column": "_vector", "q": vector_asked, "k": k, "metric": self._recipe.metric}
        with reading(self._dataset, self._name):
            found = self._dataset.to_table(
                columns=[*self._shown, "_vector", "_distance"],
                nearest=asked(nearest, effort, k) if effort else nearest | EXACT,
                filter=where,
                prefilter=True,
            )
        return found.drop_columns(["_distance"])

    def _having(
        self, column: str, values: set[str], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The chunks with one of the values in a column."""
        # Each list is a pass over the column: beyond a tenth of the index one full pass is cheaper.
        if len(values) * 10 > self._dataset.count_rows():
            yield from self._passing(column, values, columns)
        else:
            yield from self._listed(column, sorted(values), columns)

    def _passing(
        self, column: str, values: set[str], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        wanted = pa.array(values, pa.string())
        for batch in self.scan(columns):
            yield batch.filter(pc.is_in(batch[column], wanted))

    def _listed(
        self, column: str, values: list[str], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(values), LIST_LENGTH):
            among = in_list(column, values[start : start + LIST_LENGTH])
            with reading(self._dataset, self._name):
                yield from self._dataset.to_batches(
                    columns=list(columns), filter=f"{among} AND {IS_CHUNK}", **SCANNED
                )


def in_list(column: str, values: Sequence[str]) -> str:
    """`column IN (…)` with every value quoted."""
    quoted = ("'" + v.replace("'", "''") + "'" for v in values)
    return f"{column} IN ({','.join(quoted)})"


def read_checkpoint(dataset: LanceDataset, name: str) -> str:
    """The frontier as the index stores it.

    Raises:
        StoreError: there is none, or more than one.
    """
    with reading(dataset, name):
        found = _checkpoints(dataset)
    if len(found) != 1:
        raise _not_one_checkpoint(dataset, len(found), name)
    return found[0]


def _checkpoints(dataset: LanceDataset) -> list[str]:
    """The checkpoint rows of the newest fragment that has any: every commit writes a new one."""
    newest_first = sorted(dataset.get_fragments(), key=lambda f: -f.fragment_id)
    for fragment in newest_first:
        scanner = dataset.scanner(
            columns=["_checkpoint"], filter=IS_CHECKPOINT, fragments=[fragment]
        )
        if texts := scanner.to_table()["_checkpoint"].to_pylist():
            return [str(text) for text in texts]
    return []


def _not_one_checkpoint(dataset: LanceDataset, found: int, name: str) -> StoreError:
    return StoreError(
        f"{dataset.uri} has {found} checkpoint rows, but an index has one", hint=rebuild(name)
    )


def is_index(dataset: LanceDataset) -> bool:
    """Whether a dataset is an index of Lakewake, in any format."""
    marked = b"lakewake.format" in (dataset.schema.metadata or {})
    return marked and "_checkpoint" in dataset.schema.names


def read_recipe(dataset: LanceDataset, name: str) -> Recipe:
    """The recipe that the index was built with.

    Raises:
        StoreError: not an index of ours, or in a format that this Lakewake does not read.
    """
    metadata = dataset.schema.metadata or {}
    if not is_index(dataset) or metadata[b"lakewake.format"] != FORMAT:
        raise StoreError(
            f"{dataset.uri} is a Lance dataset, but not an index that this Lakewake reads",
            hint="move it away, or choose another name or store for the index",
        )
    try:
        return Recipe.from_dict(json.loads(metadata[b"lakewake.recipe"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{dataset.uri} does not hold a readable recipe", hint=rebuild(name)
        ) from error


def _parse_frontier(text: str, name: str, read: ReadPages) -> Frontier:
    try:
        return Frontier.from_json(text, read)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"index '{name}' has a checkpoint that this Lakewake cannot read: {error}",
            hint=rebuild(name),
        ) from error


@contextmanager
def reading(dataset: LanceDataset, name: str) -> Iterator[None]:
    """Map what Lance raises while reading to our errors."""
    try:
        yield
    except FOREIGN as error:
        fact = f"index '{name}' cannot be read: {brief(error)}"
        raise unreadable(fact, error, name, dataset.uri) from error


def unreadable(fact: str, error: Exception, name: str, address: str) -> StoreError:
    """What to raise if Lance cannot read an index: in S3 it may only be unreachable."""
    if not address.startswith(S3):
        return StoreError(fact, hint=rebuild(name))
    kind = StoreUnreachable if REQUEST_FAILED in str(error) else StoreError
    return kind(fact, hint=f"{HINT}; if the index is damaged, {rebuild(name)}")


def brief(error: object) -> str:
    """An error's text without S3's XML and without positions in Lance's source."""
    return re.split(r", /\S+\.rs:|: <\?xml", str(error))[0].strip()
