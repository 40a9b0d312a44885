"""How good a search is, by questions with known answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakewake.show.notebook import Shown

FORMAT = 1
#: How many digits a report shows of a value.
DIGITS = 6


@dataclass(frozen=True)
class Labelled:
    """A question, and the rows that answer it.

    Attributes:
        id: names the question in reports.
        relevant: the keys of the rows, each with a grade: the higher, the better it answers.
    """

    id: str
    text: str
    relevant: Mapping[str, float]


@dataclass(frozen=True)
class Questions:
    """Questions with known answers.

    Attributes:
        source: the file or folder that they were read from.
        fingerprint: differs if a question or an answer does.
    """

    source: str
    labelled: tuple[Labelled, ...]
    fingerprint: str


@dataclass(frozen=True)
class Mean:
    """The mean of a metric, and the interval that 95 of 100 such sets of questions are in."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """The object for JSON."""
        return {name: round(getattr(self, name), DIGITS) for name in ("value", "low", "high")}

    @classmethod
    def from_dict(cls, value: Mapping[str, float]) -> Mean:
        """The inverse of `as_dict`."""
        return cls(value["value"], value["low"], value["high"])


@dataclass(frozen=True)
class Answered:
    """How well one question was answered.

    Attributes:
        values: mode → metric → value.
    """

    id: str
    text: str
    values: Mapping[str, Mapping[str, float]]

    def as_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        rounded = {
            mode: {name: round(value, DIGITS) for name, value in some.items()}
            for mode, some in self.values.items()
        }
        return {"id": self.id, "query": self.text, "values": rounded}


@dataclass(frozen=True)
class Evaluation(Shown):
    """How good the searches of one version of an index are.

    Attributes:
        instant: the table instant that the version reflects.
        means: mode → metric → mean.
        questions: how well each question was answered.
        unfound: how many questions had no relevant row among the best hundred, in any mode.
    """

    index: str
    instant: str
    generation: int
    source: str
    fingerprint: str
    means: Mapping[str, Mapping[str, Mean]]
    questions: tuple[Answered, ...] = ()
    unfound: int = 0

    def values(self, mode: str, metric: str) -> dict[str, float]:
        """Question → value."""
        return {q.id: q.values[mode][metric] for q in self.questions}

    def as_dict(self) -> dict[str, Any]:
        """The object that `eval --json` prints."""
        return {
            "format": FORMAT,
            "index": self.index,
            "instant": self.instant,
            "generation": self.generation,
            "source": self.source,
            "fingerprint": self.fingerprint,
            "means": {
                mode: {name: mean.as_dict() for name, mean in some.items()}
                for mode, some in self.means.items()
            },
            "unfound": self.unfound,
            "questions": [one.as_dict() for one in self.questions],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Evaluation:
        """The inverse of `as_dict`, up to rounding.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is not an evaluation.
        """
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']!r}")
        return cls(
            index=value["index"],
            instant=value["instant"],
            generation=value["generation"],
            source=value["source"],
            fingerprint=value["fingerprint"],
            means={
                mode: {name: Mean.from_dict(mean) for name, mean in some.items()}
                for mode, some in value["means"].items()
            },
            questions=tuple(Answered(q["id"], q["query"], q["values"]) for q in value["questions"]),
            unfound=value["unfound"],
        )


@dataclass(frozen=True)
class Difference:
    """A question that two searches answer differently."""

    id: str
    text: str
    one: float
    other: float

    def as_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        return {"id": self.id, "query": self.text, "one": self.one, "other": self.other}


@dataclass(frozen=True)
class Comparison(Shown):
    """Two searches, by the same questions.

    Attributes:
        one, other: what was compared, in words.
        differences: metric → the mean of `other` minus `one`, question by question.
        most: the questions whose nDCG@10 differs most, the largest difference first.
        better, worse: how many questions `other` answers better and worse.
    """

    one: str
    other: str
    differences: Mapping[str, Mean]
    most: tuple[Difference, ...] = ()
    better: int = 0
    worse: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The object that `eval --compare --json` prints as `comparison`."""
        return {
            "one": self.one,
            "other": self.other,
            "differences": {name: mean.as_dict() for name, mean in self.differences.items()},
            "better": self.better,
            "worse": self.worse,
            "most": [one.as_dict() for one in self.most],
        }
