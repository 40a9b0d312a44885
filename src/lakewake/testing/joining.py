"""The searches of `lakewake.batch` without Spark: the same functions, one after the other."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakewake.batch.asked import Ask
from lakewake.batch.blocks import Comparing, grouped
from lakewake.batch.fetch import Fetch, fetched
from lakewake.batch.join import AT, CANDIDATES, GROUP, IDS, PLACES, POSITION, SCORES, Compare, Merge
from lakewake.batch.questions import CARRIED, GIVEN, QUESTION, ToVectors
from lakewake.batch.ranges import Within
from lakewake.batch.rows import Pinned, payload_names
from lakewake.model.query import Question
from lakewake.model.where import Where
from lakewake.search.run import PLAIN
from lakewake.store import StoreReader
from lakewake.store.filters import fitted

Mapper = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def comparing(reader: StoreReader, where: Where | None = None) -> Comparing:
    recipe = reader.recipe()
    fit = None if where is None else fitted(where, reader.schema())
    return Comparing(recipe.metric, recipe.model.dimension, fit)


def joined(
    reader: StoreReader,
    vectors: Sequence[Sequence[float] | None],
    k: int,
    where: Where | None = None,
    size: int = 2,
) -> list[dict[str, Any]]:
    """What the join finds: result rows, with the number of the question as `n`.

    Args:
        size: chunks in a group.
    """
    how, pin = comparing(reader, where), Pinned(reader, "wines")
    questions = _run(ToVectors(how.metric, how.dimension, None), _given(vectors))
    groups = grouped(reader.scan_parts(how.columns, size), size)
    pairs = [
        batch.append_column(GROUP, pa.array([n] * batch.num_rows, pa.int64()))
        for n in range(len(groups))
        for batch in questions
    ]
    candidates = _run(Compare(groups, k, how, pin), pairs)
    hits = _run(Merge(len(groups), k), _by_question(candidates))
    hits = pa.Table.from_batches(hits).sort_by([(AT, "ascending"), (POSITION, "ascending")])
    read = reader.scan_parts(fetched(payload_names(reader.schema())), size)
    instant = reader.frontier().newest
    fetch = Fetch(read.parts, read.schema, instant, pin)
    return _rows(_run(fetch, hits.combine_chunks().to_batches()))


def asked(reader: StoreReader, texts: Sequence[str], question: Question, load: Any) -> list[Any]:
    """What the searches for each text on its own find."""
    ask = Ask(reader, Pinned(reader, "wines"), question, True, PLAIN, load)
    given = pa.RecordBatch.from_arrays(
        [pa.array(texts, pa.string()), _numbered(len(texts))], [GIVEN, CARRIED]
    )
    return _rows(_run(ask, [given]))


def within(
    reader: StoreReader, vector: Sequence[float], least: float, where: Where | None = None
) -> list[dict[str, Any]]:
    """The chunks that are as near as `least`."""
    how, payload = comparing(reader, where), payload_names(reader.schema())
    read = reader.scan_parts(list(dict.fromkeys([*fetched(payload), *how.columns])), 2)
    groups = grouped(read, 2)
    pin = Pinned(reader, "wines")
    find = Within(groups, read.schema, how, tuple(vector), least, "", pin)
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(groups)))})
    return [row for batch in _run(find, [numbers]) for row in batch.to_pylist()]


def _run(mapper: Mapper, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """What a mapper makes on another machine."""
    return list(pickle.loads(pickle.dumps(mapper))(iter(batches)))


def _numbered(count: int) -> pa.Array:
    return pa.StructArray.from_arrays([pa.array(range(count), pa.int64())], ["c0"])


def _given(vectors: Sequence[Sequence[float] | None]) -> list[pa.RecordBatch]:
    given = pa.array(
        [None if v is None else np.asarray(v, np.float32).tolist() for v in vectors],
        pa.list_(pa.float32()),
    )
    return [pa.RecordBatch.from_arrays([given, _numbered(len(given))], [GIVEN, CARRIED])]


def _by_question(candidates: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """What Spark's `groupBy` makes: the candidates of all groups, and the carried columns."""
    together: dict[bytes, tuple[list[Any], list[Any]]] = {}
    for row in (row for batch in candidates for row in batch.to_pylist()):
        lists, carried = together.setdefault(row[QUESTION], ([], []))
        lists.append({name: row[name] for name in (IDS, SCORES, PLACES)})
        carried.append(row[CARRIED])
    lists_type = pa.list_(
        pa.struct(
            {
                IDS: pa.list_(pa.string()),
                SCORES: pa.list_(pa.float64()),
                PLACES: pa.list_(pa.int64()),
            }
        )
    )
    return [
        pa.RecordBatch.from_arrays(
            [
                pa.array([lists for lists, _ in together.values()], lists_type),
                pa.array([c[0] for _, c in together.values()], pa.struct({"c0": pa.int64()})),
            ],
            [CANDIDATES, CARRIED],
        )
    ]


def _rows(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    for row in rows:
        row["n"] = row.pop(CARRIED)["c0"]
    return sorted(rows, key=lambda row: (row["n"], row["_rank"]))
