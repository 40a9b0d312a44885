"""Which rows an answer cites, and whether they were shown to the model at all. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakewake.model.query import Hit
from lakewake.model.rows import RowId

#: How many unknown citations a reason lists.
LISTED = 5
_BRACKETS = re.compile(r"\[([^\[\]\n]{1,100})\](\()?")
_NUMBER = re.compile(r"(?:rows?\s*|#)?([0-9]{1,6})(?:\s*[-–]\s*([0-9]{1,6}))?", re.IGNORECASE)
#: Looks like the id of a row, unlike an ordinary word in brackets.
_ID = re.compile(r"(?=.*[0-9])[\w.:/@#-]+")
_WIDEST_RANGE = 100


@dataclass(frozen=True)
class Cited:
    """The rows that an answer cites, in that order, and citations of what was not shown."""

    used: tuple[RowId, ...]
    unknown: tuple[str, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Warnings about the answer; none if it cites only rows that were shown."""
        out = []
        if self.unknown:
            names = " ".join(f"[{name}]" for name in self.unknown[:LISTED])
            more = f" and {len(self.unknown) - LISTED} more" if len(self.unknown) > LISTED else ""
            out.append(f"the model's answer cites {names}{more}, which it was not shown")
        if not self.used:
            out.append("the model's answer names none of the rows that it was shown")
        return tuple(out)


def check_citations(message: str, shown: Sequence[Hit]) -> Cited:
    """The citations of an answer, checked against the rows shown: [1] is the first of them."""
    rows = [RowId(hit.partition, hit.key) for hit in shown]
    used: dict[RowId, None] = {}
    unknown: dict[str, None] = {}
    for name in _names(message):
        row = _row(name, rows)
        if row is not None:
            used[row] = None
        elif isinstance(name, int) or _ID.fullmatch(name):
            unknown[str(name)] = None
    return Cited(tuple(used), tuple(unknown))


def _row(name: int | str, rows: Sequence[RowId]) -> RowId | None:
    if isinstance(name, int):
        return rows[name - 1] if 1 <= name <= len(rows) else None
    # Two rows in different partitions may share a key; then it names neither.
    named = [row for row in rows if row.key == name]
    return named[0] if len(named) == 1 else None


def _names(message: str) -> Iterator[int | str]:
    """Numbers and other words in square brackets."""
    for brackets in _BRACKETS.finditer(message):
        for part in re.split(r"[,;]", brackets[1]):
            number = _NUMBER.fullmatch(part.strip())
            if number:
                yield from _range(int(number[1]), int(number[2] or number[1]))
            elif not brackets[2] and part.strip():  # `[word](` begins a link
                yield part.strip()


def _range(first: int, last: int) -> Iterator[int]:
    if first <= last <= first + _WIDEST_RANGE:
        yield from range(first, last + 1)
    else:
        yield from (first, last)
