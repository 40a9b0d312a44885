"""What one commit writes: a batch's rows and frontier in place of the ones that it removes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments

from lakewake.model.chunks import CHECKPOINT_ID, PAGE_ID, Batch
from lakewake.model.frontier import Frontier, page_names
from lakewake.model.recipe import Recipe
from lakewake.store.lance.reader import FOREIGN, FORMAT
from lakewake.store.lance.staging import Source, read_fragments
from lakewake.store.memory import check_columns

IDS = pa.schema([pa.field("_id", pa.string())])
IDS_AT_ONCE = 50_000
#: More deletes than this are deduplicated on disk.
HELD_DELETES = 100_000


def first_rows(recipe: Recipe, batch: Batch, then: Frontier) -> tuple[pa.Schema, Source]:
    """The schema and the rows of a new dataset."""
    schema = batch.schema.with_metadata(_metadata(recipe))
    return schema, _source(batch, schema, then, frozenset())


def write_first(
    address: str,
    options: Mapping[str, str] | None,
    schema: pa.Schema,
    source: Source,
    staged: Sequence[bytes],
) -> None:
    """Write the first version of a dataset, or nothing if there is one already."""
    fragments = write_fragments(
        source.reader(), address, schema=schema, mode="create", storage_options=options
    )
    # From version 0 and without retries, Lance writes the first version or nothing;
    # `write_dataset(mode="create")` lets racing builders overwrite one another.
    LanceDataset.commit(
        address,
        LanceOperation.Overwrite(schema, [*read_fragments(staged), *fragments]),
        read_version=0,
        max_retries=0,
        storage_options=options,
    )


def try_merge(
    dataset: LanceDataset, batch: Batch, current: str, then: Frontier
) -> Exception | None:
    """Commit the batch to this version, or return why Lance did not report success."""
    held = page_names(current)
    source = _source(batch, dataset.schema, then, held)
    former = {CHECKPOINT_ID, *(f"{PAGE_ID}{name}" for name in held - then.pages)}
    try:
        _merge(dataset, source, batch, former)
    except FOREIGN as error:
        source.raise_own()
        return error
    return None


def _merge(dataset: LanceDataset, source: Source, batch: Batch, former: set[str]) -> None:
    """In one transaction, remove every chunk that the batch names and add its own.

    The former checkpoint is removed too, with those of its pages that the new one does not have.

    Lance's own update would do the same, but reads the whole index to delete.
    """
    written = write_fragments(source.reader(), dataset, schema=dataset.schema, mode="append")
    removed = pa.RecordBatchReader.from_batches(IDS, _removed_ids(batch, former))
    transaction, _ = dataset.merge_insert("_id").when_matched_delete().execute_uncommitted(removed)
    transaction.operation.new_fragments += [*read_fragments(batch.staged), *written]
    LanceDataset.commit(dataset, transaction)


def _source(batch: Batch, schema: pa.Schema, then: Frontier, held: Collection[str]) -> Source:
    """The rows of one commit: chunks, new pages of the frontier, the frontier."""
    check_columns(batch.schema, schema)
    return Source(schema, _rows(batch, schema, then, held))


def _rows(
    batch: Batch, schema: pa.Schema, then: Frontier, held: Collection[str]
) -> Iterator[pa.RecordBatch]:
    with batch.rows() as rows:
        for some in rows:
            yield pa.RecordBatch.from_arrays(some.columns, schema=schema)
    for name, text in then.new_pages(held).items():
        page = {"_id": f"{PAGE_ID}{name}", "_checkpoint": text}
        yield pa.RecordBatch.from_pylist([page], schema=schema)
    row = {"_id": CHECKPOINT_ID, "_checkpoint": then.to_json()}
    yield pa.RecordBatch.from_pylist([row], schema=schema)


def _metadata(recipe: Recipe) -> dict[str, bytes]:
    return {
        "lakewake.format": FORMAT,
        "lakewake.recipe": json.dumps(recipe.as_dict(), ensure_ascii=False).encode(),
        "lakewake.fingerprint": recipe.fingerprint.encode(),
    }


def _removed_ids(batch: Batch, former: set[str]) -> Iterator[pa.RecordBatch]:
    """The ids of all rows to remove, each once: Lance refuses duplicates.

    If the index is damaged, a deleted chunk can have the id of one that is written.
    """
    named = {*batch.replaced, *former}
    many = len(batch.deletes) > HELD_DELETES
    return _on_disk(batch, named) if many else _in_memory(batch, {*named, *batch.deletes})


def _in_memory(batch: Batch, named: set[str]) -> Iterator[pa.RecordBatch]:
    first = pa.array(named, pa.string())
    yield pa.RecordBatch.from_arrays([first], schema=IDS)
    with batch.rows() as rows:
        for written in rows:
            others = written["_id"].filter(pc.invert(pc.is_in(written["_id"], first)))
            yield pa.RecordBatch.from_arrays([others], schema=IDS)


def _on_disk(batch: Batch, named: set[str]) -> Iterator[pa.RecordBatch]:
    """The same in bounded memory: a SQLite database without a name is a temporary file."""
    # Lance requests the ids from threads of its own, one at a time.
    with closing(sqlite3.connect("", check_same_thread=False)) as ids:
        ids.execute("CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID")
        every = chain(named, batch.deletes, _written(batch))
        ids.executemany("INSERT OR IGNORE INTO ids VALUES (?)", ((id,) for id in every))
        found = ids.execute("SELECT id FROM ids")
        while some := found.fetchmany(IDS_AT_ONCE):
            column = pa.array([id for (id,) in some], pa.string())
            yield pa.RecordBatch.from_arrays([column], schema=IDS)


def _written(batch: Batch) -> Iterator[str]:
    with batch.rows() as rows:
        for some in rows:
            yield from some["_id"].to_pylist()
