"""What an index has absorbed: its bookmark in the table's timeline."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lakewake.model.pages import Book, Note, ReadPages, unread, written
from lakewake.model.rows import RowId, T
from lakewake.model.timeline import TableIdentity

FORMAT = 1
#: The format in which rows are on pages; an older version refuses it with a clear error.
PAGED = 2
#: Rows that fit in the frontier's own text; if there are more, all are on pages beside it.
INLINE = 1_000


@dataclass(frozen=True)
class Refusal:
    """Why a row is in quarantine: the embedder's reason, the row's version, the attempts."""

    reason: str
    instant: str
    attempts: int = 1


class Refusals(Mapping[RowId, Refusal]):
    """The quarantine, read from its pages on demand."""

    def __init__(self, book: Book) -> None:
        self.book = book

    def __getitem__(self, row: RowId) -> Refusal:
        """Why a row is in it."""
        return Refusal(*self.book[row])

    def __iter__(self) -> Iterator[RowId]:
        """All rows in it."""
        return iter(self.book)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.book)


class Twice(AbstractSet[RowId]):
    """The rows that the table holds more than once, read from their pages on demand."""

    def __init__(self, book: Book) -> None:
        self.book = book

    def __contains__(self, row: object) -> bool:
        """Whether the table holds it more than once."""
        return row in self.book

    def __iter__(self) -> Iterator[RowId]:
        """All of them."""
        return iter(self.book)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.book)

    @classmethod
    def _from_iterable(cls, rows: Iterable[T]) -> AbstractSet[T]:
        return frozenset(rows)


@dataclass(frozen=True)
class Frontier:
    """The instants absorbed, those seen in flight, and the table they belong to.

    Attributes:
        instants: requested → completion time of what is absorbed and still on the active timeline.
        in_flight: instants that were open when the look was taken.
        schema: the columns that the recipe uses, with their types.
        duplicates: row ids that the table holds in more than one version.
        quarantine: rows that the embedder refused; the index holds nothing of them.
        sync: counts the commits of this index; makes two frontiers at one instant distinct.
        location: where the table was when this was written: a path or an address; for people, and
            for an index that is opened without its configuration. '' in an older index.
        token: unique for each call of a sync or a repair, so that each finds its own commit again;
            '' if an earlier version of Lakewake wrote it.
        date: the day, in UTC, on which the rows were selected; '' if the day does not matter.
        limit: the index holds only this many rows, of a first try; 0: it holds all.
        text: the text it was read from, which an earlier version may have written differently.
    """

    table: TableIdentity
    instants: Mapping[str, str] = field(default_factory=dict)
    in_flight: tuple[str, ...] = ()
    schema: Mapping[str, str] = field(default_factory=dict)
    duplicates: AbstractSet[RowId] = frozenset()
    quarantine: Mapping[RowId, Refusal] = field(default_factory=dict)
    sync: int = 0
    location: str = field(default="", compare=False)
    token: str = ""
    date: str = ""
    limit: int = 0
    text: str = field(default="", init=False, compare=False, repr=False)

    @property
    def newest(self) -> str:
        """The requested time of the absorbed instant that completed last, or ''."""
        return max(self.instants, key=lambda r: (self.instants[r], r), default="")

    def to_json(self) -> str:
        """One line of JSON, stable for equal frontiers; it names the pages that belong to it."""
        return self.text or self._json

    @property
    def pages(self) -> frozenset[str]:
        """The names of the pages that belong to it; none if all rows are in its text."""
        return page_names(self.to_json())

    def new_pages(self, held: Collection[str]) -> dict[str, str]:
        """The pages that belong to it and are not held yet, by name."""
        if not self._is_paged:
            return {}
        out: dict[str, str] = {}
        for kind, (names, texts) in self._written.items():
            lacking = {name for name in names if name} - set(held)
            book = _book(getattr(self, kind))
            found = texts if book is None else book.texts(lacking)
            out |= {name: found[name] for name in lacking}
        return out

    @cached_property
    def _json(self) -> str:
        value: dict[str, Any] = {
            "format": PAGED if self._is_paged else FORMAT,
            "table": self.table.as_dict(),
            "instants": dict(sorted(self.instants.items())),
            "in_flight": sorted(self.in_flight),
            "schema": dict(sorted(self.schema.items())),
            **(self._named_pages() if self._is_paged else self._listed()),
            "sync": self.sync,
        }
        # Without these the text stays what it always was: stores compare it.
        for name in ("location", "token", "date", "limit"):
            if given := getattr(self, name):
                value[name] = given
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    @property
    def _is_paged(self) -> bool:
        return len(self.duplicates) + len(self.quarantine) > INLINE

    def _listed(self) -> dict[str, Any]:
        return {
            "duplicates": sorted([d.partition, d.key] for d in self.duplicates),
            "quarantine": sorted(
                [row.partition, row.key, *_note(r)] for row, r in self.quarantine.items()
            ),
        }

    def _named_pages(self) -> dict[str, Any]:
        counts = {"duplicates": len(self.duplicates), "quarantine": len(self.quarantine)}
        return {kind: [counts[kind], *names] for kind, (names, _) in self._written.items()}

    @cached_property
    def _written(self) -> dict[str, tuple[tuple[str, ...], dict[str, str]]]:
        """For each kind, the names of its pages and the texts of those not stored yet."""
        twice, refused = _book(self.duplicates), _book(self.quarantine)
        no_notes: dict[RowId, Note] = dict.fromkeys(self.duplicates if twice is None else (), ())
        reasons = {} if refused else {row: _note(r) for row, r in self.quarantine.items()}
        return {
            "duplicates": (twice.names, {}) if twice is not None else written(no_notes),
            "quarantine": (refused.names, {}) if refused is not None else written(reasons),
        }

    @classmethod
    def from_json(cls, text: str, read: ReadPages = unread) -> Frontier:
        """The inverse of `to_json`; `read` reads the pages that it names, on demand.

        Raises:
            ValueError: not a frontier in a format that this Lakewake reads.
        """
        value: dict[str, Any] = json.loads(text)
        if value.get("format") not in (FORMAT, PAGED):
            raise ValueError(
                f"frontier format {value.get('format')!r}, this Lakewake reads {FORMAT} and {PAGED}"
            )
        twice, refused = value["duplicates"], value["quarantine"]
        paged = value["format"] == PAGED
        found = cls(
            table=TableIdentity.from_dict(value["table"]),
            instants=value["instants"],
            in_flight=tuple(value["in_flight"]),
            schema=value["schema"],
            duplicates=Twice(Book(twice[1:], twice[0], read))
            if paged
            else frozenset(RowId(p, k) for p, k in twice),
            quarantine=Refusals(Book(refused[1:], refused[0], read))
            if paged
            else {RowId(p, k): Refusal(*why) for p, k, *why in refused},
            sync=value["sync"],
            location=value.get("location", ""),
            token=value.get("token", ""),
            date=value.get("date", ""),
            limit=value.get("limit", 0),
        )
        object.__setattr__(found, "text", text)
        return found


def page_names(text: str) -> frozenset[str]:
    """The names of the pages that belong to the frontier with this text."""
    value: dict[str, Any] = json.loads(text)
    if value.get("format") != PAGED:
        return frozenset()
    return frozenset(n for kind in ("duplicates", "quarantine") for n in value[kind][1:] if n)


def _book(rows: object) -> Book | None:
    """The pages that rows were read from; None if they come from no page."""
    return rows.book if isinstance(rows, Twice | Refusals) else None


def _note(refusal: Refusal) -> Note:
    return (refusal.reason, refusal.instant, refusal.attempts)
