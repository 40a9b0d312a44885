"""Asks every question in every mode, and measures the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lakewake.evaluate.intervals import mean_of
from lakewake.evaluate.metrics import METRICS
from lakewake.model.evaluation import Answered, Labelled, Mean, Questions

#: Text and mode → the keys of the rows found, best first.
Find = Callable[[str, str], Sequence[str]]


def evaluate(
    questions: Questions, modes: Sequence[str], find: Find
) -> tuple[dict[str, dict[str, Mean]], tuple[Answered, ...]]:
    """The means by mode and metric, and how well each question was answered."""
    answered = tuple(_answered(one, modes, find) for one in questions.labelled)
    means = {
        mode: {name: mean_of([q.values[mode][name] for q in answered]) for name in METRICS}
        for mode in modes
    }
    return means, answered


def _answered(one: Labelled, modes: Sequence[str], find: Find) -> Answered:
    values = {mode: measured(find(one.text, mode), one.relevant) for mode in modes}
    return Answered(one.id, one.text, values)


def measured(found: Sequence[str], relevant: Mapping[str, float]) -> dict[str, float]:
    """Metric → value. A key that two partitions have counts once, at its best rank."""
    ranking = list(dict.fromkeys(found))
    return {name: metric(ranking, relevant) for name, metric in METRICS.items()}
