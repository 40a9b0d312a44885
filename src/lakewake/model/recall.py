"""How an index is searched, and what share of the nearest vectors a search finds. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: The default of an index's `recall`, and that of an index in the lake, where a search reads whole
#: cells.
RECALL, RECALL_IN_LAKE = 0.99, 0.95
#: What the mean of the worst tenth of a probe's questions must reach.
WORST_TENTH = 0.9
#: Kinds of questions about what an index holds; the other kind is about what it held.
LIVE = ("stored", "midpoints", "recent")
DELETED = "deleted"


@dataclass(frozen=True)
class Effort:
    """What an approximate search costs.

    Attributes:
        probes: how many partitions are searched; in Qdrant, how many candidates are held.
        refine: how many times the wanted vectors are compared by their true distance.
    """

    probes: int
    refine: int


@dataclass(frozen=True)
class Probed:
    """The recall that a probe measured, by asking questions both approximately and exactly.

    Attributes:
        kinds: kind of question → the mean of its questions.
    """

    effort: Effort
    mean: float
    worst_tenth: float
    kinds: Mapping[str, float] = field(default_factory=dict)

    def keeps(self, recall: float) -> bool:
        """Whether it found what is promised, for each kind of question and for the worst ones."""
        means = (self.mean, *self.kinds.values())
        return min(means) >= recall and self.worst_tenth >= WORST_TENTH

    def fits(self, recall: float) -> bool:
        """Whether the partitions fit what the index holds now."""
        return min((self.kinds[k] for k in LIVE if k in self.kinds), default=1.0) >= recall


@dataclass(frozen=True)
class Decision:
    """How to search one version of an index, according to its last probe.

    Attributes:
        plain: without a filter; None: exactly.
        filtered: with a filter, or after many deletes; None: exactly.
        at: when it was probed, in ISO 8601.
        covered: vectors that the approximate index would cover had none been deleted since.
        taken: vectors that were added to it since.
    """

    plain: Probed | None
    filtered: Probed | None
    at: str
    questions: int
    recall: float
    covered: int
    taken: int = 0

    def deleted(self, covered: int) -> int:
        """How many vectors were deleted since the probe."""
        return max(self.covered - covered, 0)

    def to_json(self) -> str:
        """The text that an index stores."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | None) -> Decision | None:
        """The inverse of `to_json`; None if this Lakewake does not understand the text."""
        try:
            value = json.loads(text or "null")
            return cls(
                plain=_probed(value["plain"]),
                filtered=_probed(value["filtered"]),
                at=str(value["at"]),
                questions=int(value["questions"]),
                recall=float(value["recall"]),
                covered=int(value["covered"]),
                taken=int(value["taken"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            # Another version wrote it, and it is only advice: a new one is made.
            return None


def _probed(value: Mapping[str, Any] | None) -> Probed | None:
    if value is None:
        return None
    effort = Effort(int(value["effort"]["probes"]), int(value["effort"]["refine"]))
    kinds = {str(kind): float(mean) for kind, mean in value["kinds"].items()}
    return Probed(effort, float(value["mean"]), float(value["worst_tenth"]), kinds)


@dataclass(frozen=True)
class CellSizes:
    """How the chunks of an index in the lake are spread over its cells.

    Attributes:
        cells: how many there are.
        smallest, median, largest: chunks in a cell.
        skew: chunks in the largest cell, as a multiple of the mean.
    """

    cells: int
    smallest: int
    median: int
    largest: int
    skew: float

    @classmethod
    def of(cls, sizes: Collection[int]) -> CellSizes:
        """The sizes of these cells, at least one."""
        ordered, total = sorted(sizes), sum(sizes)
        skew = ordered[-1] * len(ordered) / total if total else 1.0
        return cls(len(ordered), ordered[0], ordered[len(ordered) // 2], ordered[-1], skew)


@dataclass(frozen=True)
class Retrained:
    """How the last retrain of an index in the lake ended.

    Attributes:
        at: when, in ISO 8601.
        switched: whether the new cells are in use.
        why: the reason, in a few words.
        cells_before, cells_after: how many cells there were, and how many were trained.
        read_before, read_after: how many of them a search has to read for the promised recall; 0:
            all.
        recall_before, recall_after: what the same questions found by reading that many; None: not
            measured.
        changes: chunks written to and deleted from the generation before.
    """

    at: str
    switched: bool
    why: str
    cells_before: int = 0
    cells_after: int = 0
    read_before: int = 0
    read_after: int = 0
    recall_before: float | None = None
    recall_after: float | None = None
    changes: int = 0

    @property
    def in_words(self) -> str:
        """The same in a line."""
        if not self.switched:
            return f"the cells stay as they are: {self.why}"
        found = f"recall {self.recall_after or 0:.3f}"
        before = f", before {self.recall_before:.3f}" if self.recall_before is not None else ""
        return f"new cells are in use: {self.why}; {found}{before}"

    @classmethod
    def from_dict(cls, value: Mapping[str, Any] | None) -> Retrained | None:
        """The inverse of `asdict`; None for None.

        Raises:
            TypeError: another version wrote it.
        """
        return None if value is None else cls(**value)


@dataclass(frozen=True)
class Searching:
    """How an index is searched, as `status` reports it.

    Attributes:
        mode: `exact`: each vector is compared; `approximate`: an index finds the candidates.
        why: the reason, in a few words.
        recall: what is promised: the share of the ten nearest that a search finds on average.
        probes, partitions: how many of the partitions a search reads; 0 if it is exact. Qdrant
            has no partitions; its `probes` is `hnsw_ef`.
        recall_mean, recall_worst_tenth: what the last probe found; None: not probed.
        probed_at: when that was, in ISO 8601.
        questions: how many it asked.
        kinds: kind of question → what the probe found for it.
        cells: the sizes of its cells; None unless the index is in the lake.
        retrained: how the last retrain ended; None if there was none.
        kind: the kind of the approximate index, such as `ivf_rq`; '' if it is exact.
    """

    mode: str = "exact"
    why: str = ""
    recall: float = RECALL
    probes: int = 0
    partitions: int = 0
    recall_mean: float | None = None
    recall_worst_tenth: float | None = None
    probed_at: str = ""
    questions: int = 0
    kinds: Mapping[str, float] = field(default_factory=dict)
    cells: CellSizes | None = None
    retrained: Retrained | None = None
    kind: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        return asdict(self)
