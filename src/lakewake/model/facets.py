"""The values of a payload column, for filters to choose from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakewake.show.notebook import Shown


@dataclass(frozen=True)
class Facet(Shown):
    """One payload column, or field of a struct, over all rows of an index. Nulls are left out.

    Attributes:
        column: its name; `customer.country` for a field.
        type: `text`, `number`, `boolean` or `time`.
        values: of a text or boolean: the most frequent values and how many rows have each, most
            frequent first; None if there are too many different ones to choose from.
        more: how many further values there are that `values` does not list.
        of_list: these are elements of lists, to filter by with CONTAINS.
        min, max: of a number or time (times as ISO 8601); None if there is no value.
    """

    column: str
    type: str
    values: Mapping[str | bool, int] | None = None
    min: int | float | str | None = None
    max: int | float | str | None = None
    more: int = 0
    of_list: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        listed = None
        if self.values is not None:
            listed = [{"value": value, "count": n} for value, n in self.values.items()]
        return {
            "column": self.column,
            "type": self.type,
            "values": listed,
            "min": self.min,
            "max": self.max,
            "more": self.more,
            "of_list": self.of_list,
        }
