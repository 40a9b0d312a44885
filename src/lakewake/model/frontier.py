"""What an index has absorbed: its bookmark in the table's history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity

FORMAT = 1


@dataclass(frozen=True)
class Refusal:
    """Why a row is in quarantine: what the embedder said, of which version, how often."""

    reason: str
    instant: str
    attempts: int = 1


@dataclass(frozen=True)
class Frontier:
    """The instants absorbed, those seen in flight, and the table they belong to.

    Attributes:
        instants: requested → completion time of what is absorbed and still on the active timeline.
        in_flight: instants that were open when the look was taken.
        schema: the columns that the recipe uses, with their types.
        duplicates: row ids of which the table holds more than one version.
        quarantine: rows that the embedder refused; the index holds nothing of them.
        sync: counts the commits of this index; makes two frontiers at one instant distinct.
        token: unlike that of any other call of a sync or a repair, so that each finds its own
            commit again; '' where an earlier version of Lakewake wrote it.
    """

    table: TableIdentity
    instants: Mapping[str, str] = field(default_factory=dict)
    in_flight: tuple[str, ...] = ()
    schema: Mapping[str, str] = field(default_factory=dict)
    duplicates: frozenset[RowId] = frozenset()
    quarantine: Mapping[RowId, Refusal] = field(default_factory=dict)
    sync: int = 0
    token: str = ""

    @property
    def newest(self) -> str:
        """The requested time of the absorbed instant that completed last, or ''."""
        return max(self.instants, key=lambda r: (self.instants[r], r), default="")

    def to_json(self) -> str:
        """One line of JSON, stable for equal frontiers."""
        value: dict[str, Any] = {
            "format": FORMAT,
            "table": self.table.as_dict(),
            "instants": dict(sorted(self.instants.items())),
            "in_flight": sorted(self.in_flight),
            "schema": dict(sorted(self.schema.items())),
            "duplicates": sorted([d.partition, d.key] for d in self.duplicates),
            "quarantine": sorted(
                [row.partition, row.key, r.reason, r.instant, r.attempts]
                for row, r in self.quarantine.items()
            ),
            "sync": self.sync,
        }
        if self.token:
            # An index that has none stands at the text it always had: stores compare that.
            value["token"] = self.token
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Frontier:
        """The inverse of `to_json`.

        Raises:
            ValueError: not a frontier of a format this version reads.
        """
        value: dict[str, Any] = json.loads(text)
        if value.get("format") != FORMAT:
            raise ValueError(
                f"frontier format {value.get('format')!r}, this version reads {FORMAT}"
            )
        return cls(
            table=TableIdentity.from_dict(value["table"]),
            instants=value["instants"],
            in_flight=tuple(value["in_flight"]),
            schema=value["schema"],
            duplicates=frozenset(RowId(p, k) for p, k in value["duplicates"]),
            quarantine={RowId(p, k): Refusal(*why) for p, k, *why in value["quarantine"]},
            sync=value["sync"],
            token=value.get("token", ""),
        )
