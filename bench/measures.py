"""What a bar measured, and whether the bar is met. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measure:
    """One number and its limit.

    Attributes:
        value: None if it could not be measured in this run.
        bound: `≤` or `≥`; empty if the number is only reported.
    """

    what: str
    value: float | None
    bound: str = ""
    limit: float = 0.0
    unit: str = ""

    @property
    def missed(self) -> bool:
        """Whether it was measured and is on the wrong side of the limit."""
        if self.value is None or not self.bound:
            return False
        return self.value > self.limit if self.bound == "≤" else self.value < self.limit

    @property
    def lacking(self) -> bool:
        """Whether it has a limit and was not measured."""
        return self.value is None and bool(self.bound)

    def as_text(self) -> str:
        """`1.7 (≤ 2)`."""
        value = "–" if self.value is None else number(self.value) + self.unit
        bound = f"{self.bound} {number(self.limit)}{self.unit}" if self.bound else "reported"
        return f"{value} ({bound})"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "what": self.what,
            "value": self.value,
            "bound": self.bound,
            "limit": self.limit if self.bound else None,
            "unit": self.unit.strip(),
            "said": self.as_text(),
        }


@dataclass(frozen=True)
class Outcome:
    """The result of one bar.

    Attributes:
        seen: all figures behind the measures.
        fault: why the bar did not run to its end; empty if it did.
    """

    measures: tuple[Measure, ...] = ()
    seen: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""

    @property
    def verdict(self) -> str:
        """`met`, `missed`, `not run` or `failed`."""
        if self.fault:
            return "failed"
        if any(m.missed for m in self.measures):
            return "missed"
        return "not run" if any(m.lacking for m in self.measures) else "met"

    def as_text(self) -> str:
        """`met 1.7 (≤ 2), 2.9 (≤ 4)`."""
        details = self.fault or ", ".join(m.as_text() for m in self.measures)
        return f"{self.verdict} {details}"


def number(value: float) -> str:
    """The value with three significant digits, or as an integer from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The quotient of two medians."""
    return statistics.median(ours) / statistics.median(theirs)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` percent of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-len(ordered) * percent // 100) - 1))]


def rounded(values: Sequence[float], digits: int = 4) -> list[float]:
    """For JSON."""
    return [round(v, digits) for v in values]
