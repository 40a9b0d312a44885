"""Compares two searches, question by question. Pure."""

from __future__ import annotations

from lakewake.errors import ConfigError
from lakewake.evaluate.intervals import mean_of
from lakewake.evaluate.metrics import METRICS
from lakewake.model.evaluation import Comparison, Difference, Evaluation

#: How many of the questions that differ most are listed.
LISTED = 10
MAIN = "ndcg@10"


def compare(
    one: Evaluation, mode: str, other: Evaluation, other_mode: str | None = None
) -> Comparison:
    """How much better `other` is, by the questions that both were asked.

    Raises:
        ConfigError: they have no question in common, or were not asked in these modes.
    """
    modes = (mode, other_mode or mode)
    for evaluation, asked in zip((one, other), modes, strict=True):
        if asked not in evaluation.means:
            raise ConfigError(
                f"mode {asked} of '{evaluation.index}' was not evaluated",
                hint=f"compare one of {', '.join(evaluation.means)}",
            )
    texts = {q.id: q.text for q in one.questions}
    common = [q.id for q in other.questions if texts.get(q.id) == q.text]
    if not common:
        raise ConfigError(
            "the two evaluations have no question in common",
            hint="evaluate both with the same questions",
        )
    before, after = one.values(modes[0], MAIN), other.values(modes[1], MAIN)
    differing = [Difference(i, texts[i], before[i], after[i]) for i in common]
    differing = [d for d in differing if d.one != d.other]
    most = sorted(differing, key=lambda d: (-abs(d.other - d.one), d.id))
    return Comparison(
        one=described(one, modes[0]),
        other=described(other, modes[1]),
        differences={name: mean_of(_paired(one, other, modes, name, common)) for name in METRICS},
        most=tuple(most[:LISTED]),
        better=sum(d.other > d.one for d in differing),
        worse=sum(d.other < d.one for d in differing),
    )


def _paired(
    one: Evaluation, other: Evaluation, modes: tuple[str, str], metric: str, ids: list[str]
) -> list[float]:
    before, after = one.values(modes[0], metric), other.values(modes[1], metric)
    return [after[id] - before[id] for id in ids]


def described(one: Evaluation, mode: str) -> str:
    """What was evaluated, in words."""
    return f"{one.index} {mode}, generation {one.generation}, table at {one.instant}"
