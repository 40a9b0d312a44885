"""Stand-ins for what other branches bring. Goes away when they are merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakewake.model.query import SearchResult


@dataclass(frozen=True)
class Recommendation:
    """A message quoted from the best row."""

    query: str
    found: SearchResult

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        best = self.found.hits[:1]
        return {
            "query": self.query,
            "message": " ".join(h.text or "" for h in best),
            "answered_by": "extract" if best else "none",
            "used": [{"key": h.key, "partition": h.partition} for h in best],
            "hits": [h.as_dict() for h in self.found.hits],
            "instant": self.found.instant,
            "reason": None,
        }


@dataclass(frozen=True)
class Told:
    """A record, a facet or a commit."""

    value: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self.value
