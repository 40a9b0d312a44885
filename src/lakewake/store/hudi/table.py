"""Reads one state of the Hudi table of an index, without a JVM."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiFileGroupReader, HudiReadOptions, HudiTable, HudiTableBuilder
from pyarrow import fs

from lakewake.errors import LakewakeError, StoreError, StoreUnreachable
from lakewake.lazy import lazy
from lakewake.model.cleaning import parse_clean_plan
from lakewake.store.hints import rebuild
from lakewake.store.hudi.layout import CELL, FRONTIER_KEY, NOTES
from lakewake.store.hudi.slices import Slice, SliceCache
from lakewake.store.location import Folder, Location

_COMPLETED = re.compile(r"(\d+)_(\d+)\.(commit|deltacommit|replacecommit|restore)")
_PENDING = re.compile(r"(\d+)\.(?:deltacommit|rollback)\.(?:requested|inflight)")
_LOG = re.compile(r"_(\d+)\.log\.")
#: How the names of the plans of cleans end.
PLAN = ".clean.requested"
#: In the name of a base file or a log: the instant that wrote it.
_WRITTEN = re.compile(r"_(\d+)\.(?:parquet$|log\.)")

T = TypeVar("T")


def completed(location: Location, table: str) -> tuple[str, ...]:
    """The names of the completed instants of a table that change rows, in order.

    Raises:
        OSError: the location cannot be reached.
    """
    names = location.names(f"{table}/.hoodie/timeline")
    return tuple(sorted(name for name in names if _COMPLETED.fullmatch(name)))


def instant_of(instants: Sequence[str]) -> str:
    """The state that completed instants lead to: the requested time of the last one."""
    return instants[-1].partition("_")[0]


def moving(instants: Sequence[str]) -> tuple[str, ...]:
    """Those of the instants that can move a frontier: not compactions."""
    return tuple(name for name in instants if not name.endswith(".commit"))


def kept_from(location: Location, table: str) -> str:
    """The instant from which on the states of a table are whole; '' if nothing was cleaned.

    A clean writes its plan before it removes files. Readers do not check: of an older state they
    silently return what is left.

    Raises:
        OSError: the location cannot be reached.
    """
    folder = f"{table}/.hoodie/timeline"
    plans = [name for name in location.names(folder) if name.endswith(PLAN)]
    return max((_kept_by(location.read(f"{folder}/{n}"), n) for n in plans), default="")


def _kept_by(plan: bytes | None, name: str) -> str:
    if plan is None:
        # It was archived just now. A newer clean is there.
        return ""
    with suppress(ValueError, EOFError, StopIteration):
        if kept := parse_clean_plan(plan):
            return kept
    # Unfinished, or by another policy: it may keep only what is newer than itself.
    return name.removesuffix(PLAN)


def pending(names: Collection[str]) -> dict[str, list[str]]:
    """Commits and roll-backs on a timeline that are not completed: instant → its files."""
    done = {name.partition("_")[0] for name in names if "_" in name}
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        match = _PENDING.fullmatch(name)
        if match and match[1] not in done:
            found.setdefault(match[1], []).append(name)
    return found


def bury(location: Location, table: str) -> None:
    """Remove the commits of writers that lost the lock before they completed them.

    Hudi completes a commit only if the files of its pending instant are there, so these go first.
    A commit for which Hudi has looked already has written all its rows, so these are found here
    and removed: even if it completes, it changes nothing.
    """
    meta = f"{table}/.hoodie"
    dead = pending(location.names(f"{meta}/timeline"))
    if not dead:
        return
    location.discard(f"{meta}/timeline", [name for names in dead.values() for name in names])
    root = location.path(table)
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    every = location.ask(lambda: location.files.get_file_info(selector))
    left = [
        found.path.removeprefix(f"{root}/")
        for found in every
        if (match := _WRITTEN.search(found.base_name)) and match[1] in dead
    ]
    if left:
        location.discard(table, left)
    for instant in dead:
        location.remove(f"{meta}/.temp/{instant}")


class IndexTable:
    """One state of an index's table: its rows after a given instant. It can be pickled.

    Args:
        location: the folder of the index.
        folder: the table's folder in it.
        instant: the instant's requested time.
        name: the name of the index.
    """

    def __init__(
        self,
        location: Location,
        folder: str,
        instant: str,
        name: str,
        cache: SliceCache | None = None,
    ) -> None:
        self.location, self.folder = location, folder
        self.instant, self.name = instant, name
        self._cache = cache or SliceCache(0)

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexTable, (self.location, self.folder, self.instant, self.name)

    @property
    def path(self) -> str:
        """The path of the table, for Spark."""
        return self.location.spark(self.folder)

    def notes(self) -> dict[str, str]:
        """The notes, `_id` → text."""
        found: dict[str, str] = {}
        for one in self.note_slices:
            rows = self._read(one, ["_id", "_checkpoint"])
            found |= dict(
                zip(rows["_id"].to_pylist(), rows["_checkpoint"].to_pylist(), strict=True)
            )
        return found

    @lazy
    def note_slices(self) -> list[Slice]:
        """The slices with notes."""
        return self._listed([(CELL, "=", str(NOTES))])

    @lazy
    def slices(self) -> dict[int, tuple[Slice, ...]]:
        """The slices with chunks, by cell."""
        out: dict[int, list[Slice]] = {}
        for one in self._listed(None):
            if one.cell != NOTES:
                out.setdefault(one.cell, []).append(one)
        return {
            cell: tuple(sorted(some, key=lambda s: s.base or s.logs[0]))
            for cell, some in sorted(out.items())
        }

    def every(self) -> Iterator[Slice]:
        """All slices with chunks."""
        for some in self.slices.values():
            yield from some

    def at(self, instant: str) -> IndexTable:
        """The state of the same table after another instant."""
        return IndexTable(self.location, self.folder, instant, self.name, self._cache)

    def commits(self) -> Iterator[tuple[str, str]]:
        """The commits that wrote a frontier, newest first: instant and frontier."""
        timeline = self._ask(self._table.get_timeline)
        # A build completes as `commit`, like a compaction, which writes no frontier.
        every = self._ask(
            lambda: [*timeline.get_completed_commits(), *timeline.get_completed_deltacommits()]
        )
        for commit in sorted(every, key=lambda c: c.timestamp, reverse=True):
            text = self._ask(partial(timeline.get_instant_metadata_in_json, commit))
            frontier = (json.loads(text).get("extraMetadata") or {}).get(FRONTIER_KEY)
            if frontier:
                yield commit.timestamp, frontier

    def changed_since(self, instant: str) -> tuple[int, int]:
        """How many rows were written and deleted after an instant, up to this state."""
        written = deleted = 0
        for content in self._ask(lambda: self._commits_after(instant)):
            for stat in chain.from_iterable(content["partitionToWriteStats"].values()):
                deleted += int(stat.get("numDeletes") or 0)
                if not stat["partitionPath"].endswith(f"={NOTES}"):
                    written += int(stat.get("numWrites") or 0)
        return written, deleted

    def _commits_after(self, instant: str) -> list[dict[str, Any]]:
        """The metadata of the commits after an instant, up to this state."""
        timeline = self._table.get_timeline()
        return [
            json.loads(timeline.get_instant_metadata_in_json(commit))
            for commit in timeline.get_completed_deltacommits()
            if instant < commit.timestamp <= self.instant
        ]

    def columns(self, one: Slice, names: Sequence[str]) -> dict[str, pa.Array]:
        """Columns of a slice, its rows ordered by `_id`."""
        held = self._cache.get(self.path, one)
        missing = [name for name in names if name not in held]
        if missing:
            wanted = list(dict.fromkeys(["_id", *missing]))
            rows = self._read(one, wanted)
            order = pc.sort_indices(rows["_id"])
            fresh = {name: _whole(rows[name].take(order)) for name in wanted}
            self._cache.put(self.path, one, fresh)
            held |= fresh
        return {name: held[name] for name in names}

    def matrix(self, one: Slice, dimension: int) -> np.ndarray:
        """The vectors of a slice, one per row, ordered by `_id`; NaN for a null vector."""
        column = self.columns(one, ["_vector"])["_vector"]
        if column.null_count == 0:
            # The memory of the column itself.
            return as_vectors(column, dimension)
        found: np.ndarray | None = self.derived(one, "matrix")
        if found is None:
            found = as_vectors(column, dimension)
            self.keep(one, "matrix", found)
        return found

    def derived(self, one: Slice, name: str) -> Any:
        """Something that was made from a slice and kept with it; None if there is nothing."""
        return self._cache.get(self.path, one).get(name)

    def keep(self, one: Slice, name: str, value: Any) -> None:
        """Keep something that was made from a slice; it has `nbytes`."""
        self._cache.put(self.path, one, {name: value})

    def _read(self, one: Slice, names: Sequence[str]) -> pa.Table:
        options = HudiReadOptions(projection=list(names))
        rows = self._ask(
            lambda: self._reader.read_file_slice_from_paths(one.base, list(one.logs), options)
        )
        return pa.Table.from_batches([rows]).select(list(names))

    def _listed(self, filters: list[tuple[str, str, str]] | None) -> list[Slice]:
        options = HudiReadOptions(filters=filters).with_as_of_timestamp(self.instant)
        found = self._ask(lambda: self._table.get_file_slices(options))
        return [self._slice(one) for one in found]

    def _ask(self, question: Callable[[], T]) -> T:
        """What the Hudi reader answers; its errors become ours."""
        try:
            return self.location.ask(question)
        except LakewakeError:
            raise
        except Exception as error:
            raise _unreadable(self, error) from error

    def _slice(self, found: Any) -> Slice:
        cell = int(str(found.partition_path).rpartition("=")[2])
        logs = [n for n in found.log_files_relative_paths() if self._landed(n)]
        return Slice(cell, found.base_file_relative_path(), tuple(sorted(logs, key=_log_order)))

    def _landed(self, log: str) -> bool:
        """Whether a log file belongs to this state."""
        match = _LOG.search(log)
        return match is None or match[1] <= self.instant

    @lazy
    def _table(self) -> HudiTable:
        builder = HudiTableBuilder.from_base_uri(self.location.address(self.folder))
        return builder.with_storage_options(self.location.object_store).build()

    @lazy
    def _reader(self) -> HudiFileGroupReader:
        options = HudiReadOptions().with_as_of_timestamp(self.instant)
        return self._table.create_file_group_reader_with_options(options)


def _log_order(path: str) -> tuple[str, str]:
    match = _LOG.search(path)
    return (match[1] if match else "", path)


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def as_vectors(column: pa.Array, dimension: int) -> np.ndarray:
    """A column of Hudi vectors as a matrix; NaN for a null vector."""
    out = np.full((len(column), dimension), np.nan, np.float32)
    held = column.drop_null()
    if len(held):
        width = held.type.byte_width
        content = memoryview(held.buffers()[1])[
            held.offset * width : (held.offset + len(held)) * width
        ]
        vectors = np.frombuffer(content, "<f4").reshape(-1, dimension)
        if column.null_count == 0:
            return vectors.astype(np.float32, copy=False)
        out[np.asarray(column.is_valid())] = vectors
    return out


def _unreadable(table: IndexTable, error: Exception) -> StoreError:
    """What to raise if the Hudi reader fails: in S3 the table may only be out of reach."""
    address = table.location.address(table.folder)
    if not isinstance(table.location, Folder):
        reason = error
        try:
            table.location.check()
        except OSError as unreachable:
            reason = unreachable
        if isinstance(reason, OSError):
            fact = f"index '{table.name}' cannot be reached at {address}: {reason}"
            return StoreUnreachable(fact, hint=table.location.hint)
    fact = f"index '{table.name}' cannot be read at {address}: {error}"
    return StoreError(fact, hint=rebuild(table.name))


def among(column: pa.Array, values: Collection[str]) -> pa.Array:
    """Which values of a column are among these."""
    return pc.is_in(column, value_set=pa.array(list(values), column.type))
