"""Checks whether a version of a Lance index can be searched, by reading a little of it.

There are two checks. The first looks at every data file from outside (does it exist, does it have
the length that was written, does it end as it should) and costs microseconds. The second reads
through Lance, as a search does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakewake.errors import IndexDamaged, StoreUnreachable
from lakewake.model.chunks import text_hash
from lakewake.store.hints import rebuild
from lakewake.store.lance.reader import FOREIGN, brief, unreadable
from lakewake.store.location import S3

if TYPE_CHECKING:
    from lance import LanceDataset

#: One chunk is read from each of this many random fragments: over time, from all fragments.
SAMPLED = 8
#: How every Lance file ends.
MAGIC = b"LANC"


def check_files(dataset: LanceDataset, name: str) -> None:
    """Check the files of a local index from outside.

    Raises:
        IndexDamaged: one is missing, or differs from what was written.
    """
    if dataset.uri.startswith(S3):
        return
    for path, size in _files(dataset):
        try:
            fault = _fault(path, size)
        except FileNotFoundError:
            fault = "is not there"
        except OSError:
            continue  # unreachable is not damaged: reading it reports the cause
        if fault:
            raise _damaged(name, f"{path.name} {fault}")


def check_versions(address: str, name: str) -> None:
    """Check the manifests of a local index that cannot be opened.

    Raises:
        IndexDamaged: one is empty, as after a power cut.
    """
    if address.startswith(S3):
        return
    for path in Path(address).glob("_versions/*.manifest"):
        if not path.stat().st_size:
            raise _damaged(name, f"{path.name} is empty")


def _files(dataset: LanceDataset) -> Iterator[tuple[Path, int | None]]:
    """The files that hold chunks, with their sizes."""
    folder = Path(dataset.uri)
    for fragment in dataset.get_fragments():
        for file in fragment.data_files():
            yield folder / "data" / file.path, file.file_size_bytes
        if deleted := fragment.deletion_file():
            yield folder / deleted, None


def _fault(path: Path, size: int | None) -> str:
    found = path.stat().st_size
    if not found:
        return "is empty"
    if size is None:
        return ""
    if found != size:
        return f"has {found:,} bytes, but {size:,} were written"
    with path.open("rb") as file:
        file.seek(-len(MAGIC), 2)
        return "" if file.read() == MAGIC else "is not a Lance file any more"


def read_a_little(dataset: LanceDataset, name: str, *, metric: str = "") -> None:
    """Read a few chunks as a search does, and ask the approximate index for one.

    Args:
        metric: that of the approximate index; '' if there is none.

    Raises:
        IndexDamaged: they cannot be read, or contradict themselves.
        StoreUnreachable: the store did not answer.
    """
    try:
        chunks = _some(dataset)
        for chunk in chunks:
            _check_sound(name, chunk)
        if chunks and metric:
            _nearest(dataset, metric, random.choice(chunks)["_vector"])
    except FOREIGN as error:
        fact = f"index '{name}' cannot be read: {brief(error)}"
        known = unreadable(fact, error, name, dataset.uri)
        if isinstance(known, StoreUnreachable):
            raise known from error
        raise IndexDamaged(known.fact, hint=known.hint) from error


def _some(dataset: LanceDataset) -> list[dict[str, Any]]:
    """One whole chunk from each of a few fragments."""
    start, starts = 0, []
    for fragment in dataset.get_fragments():
        rows = fragment.count_rows()
        if rows:
            starts.append((start, rows))
        start += rows
    chosen = random.sample(starts, min(len(starts), SAMPLED))
    offsets = sorted(first + random.randrange(rows) for first, rows in chosen)
    found: pa.Table = dataset.take(offsets) if offsets else dataset.schema.empty_table()
    return [row for row in found.to_pylist() if row["_checkpoint"] is None]


def _check_sound(name: str, chunk: dict[str, Any]) -> None:
    if chunk["_text"] is not None and text_hash(chunk["_text"]) != chunk["_hash"]:
        raise _damaged(name, f"what it holds of {chunk['_key']!r} contradicts itself")


def _nearest(dataset: LanceDataset, metric: str, vector: list[float] | None) -> None:
    if vector is None:
        return
    asked = pa.array(vector, pa.float32())
    nearest = {"column": "_vector", "q": asked, "k": 1, "metric": metric, "nprobes": 1}
    dataset.to_table(columns=["_id", "_distance"], nearest=nearest)


def _damaged(name: str, fault: str) -> IndexDamaged:
    return IndexDamaged(
        f"index '{name}' cannot be read, it is damaged: {fault}", hint=rebuild(name)
    )
