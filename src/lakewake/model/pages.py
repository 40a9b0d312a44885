"""Rows that a frontier names, on pages beside it if there are many. Pure.

Each page holds the rows of one slot, chosen by a checksum of their ids, and is named by a hash of
its text. So a commit writes only the pages that changed, and finding one row reads one page.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from lakewake.model.rows import RowId

#: About how many rows a page holds.
PAGE_ROWS = 2_000

#: What is noted about a row: the values after its partition and key on the page.
Note = tuple[Any, ...]
#: Names of pages → their texts.
ReadPages = Callable[[Collection[str]], Mapping[str, str]]


def unread(names: Collection[str]) -> Mapping[str, str]:
    """Used for pages that cannot be read here.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{len(names)} pages of the frontier are kept elsewhere")


class Book(Mapping[RowId, Note]):
    """What is noted about rows, read page by page on demand.

    Args:
        names: the page of each slot; '' if it would be empty.
        rows: how many rows there are in total.
    """

    def __init__(self, names: Iterable[str], rows: int, read: ReadPages) -> None:
        self.names = tuple(names)
        self._rows = rows
        self._read = read
        self._pages: dict[str, dict[RowId, Note]] = {"": {}}

    def __getitem__(self, row: RowId) -> Note:
        """What is noted about a row."""
        return self._page(self.names[slot(row, len(self.names))])[row]

    def __iter__(self) -> Iterator[RowId]:
        """All rows. Every page is read."""
        self._pages |= self._parsed({name for name in self.names if name not in self._pages})
        for name in self.names:
            yield from self._pages[name]

    def __len__(self) -> int:
        """How many rows there are, without reading any."""
        return self._rows

    def texts(self, names: Collection[str]) -> Mapping[str, str]:
        """The pages as they are stored."""
        return self._read(names) if names else {}

    def _page(self, name: str) -> dict[RowId, Note]:
        if name not in self._pages:
            self._pages |= self._parsed({name})
        return self._pages[name]

    def _parsed(self, names: Collection[str]) -> dict[str, dict[RowId, Note]]:
        return {name: _parse(text) for name, text in self.texts(names).items()}


def written(notes: Mapping[RowId, Note]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The name of each slot's page, and the texts of the pages by name."""
    slots: list[list[tuple[Any, ...]]] = [[] for _ in range(_slots(len(notes)))]
    for row, note in notes.items():
        slots[slot(row, len(slots))].append((row.partition, row.key, *note))
    texts = [_text(sorted(rows)) for rows in slots]
    names = tuple(_name(n, text) if text else "" for n, text in enumerate(texts))
    return names, {name: text for name, text in zip(names, texts, strict=True) if name}


def slot(row: RowId, slots: int) -> int:
    """The page that holds a row, out of this number of pages."""
    return zlib.crc32(f"{row.partition}\0{row.key}".encode()) % slots


def _slots(rows: int) -> int:
    """A power of two, so that a row more or less seldom moves the others."""
    return 1 << max(-(-rows // PAGE_ROWS) - 1, 0).bit_length()


def _text(rows: list[tuple[Any, ...]]) -> str:
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")) if rows else ""


def _name(number: int, text: str) -> str:
    return f"{number}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _parse(text: str) -> dict[RowId, Note]:
    return {RowId(p, k): tuple(note) for p, k, *note in json.loads(text)}
