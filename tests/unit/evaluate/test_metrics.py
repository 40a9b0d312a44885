"""The metrics are those of ir-measures, and intervals cover what they promise."""

from __future__ import annotations

import hypothesis.strategies as st
import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from ir_measures import RR, R, nDCG

from lakewake.evaluate.compare import compare
from lakewake.evaluate.intervals import mean_of
from lakewake.evaluate.metrics import METRICS
from lakewake.evaluate.plot import as_svg
from lakewake.evaluate.run import evaluate, measured
from lakewake.model.evaluation import Evaluation, Labelled, Questions

THEIRS = {"ndcg@10": nDCG @ 10, "recall@100": R @ 100, "mrr": RR @ 100}
KEYS = [f"k{n}" for n in range(130)]


@settings(deadline=None, max_examples=60)
@given(
    grades=st.dictionaries(st.sampled_from(KEYS), st.integers(0, 3), min_size=1, max_size=30),
    ranking=st.lists(st.sampled_from(KEYS), unique=True, max_size=130),
)
def test_metrics_equal_those_of_ir_measures(grades: dict[str, int], ranking: list[str]) -> None:
    if not any(grades.values()):
        grades["k0"] = 1
    run = {"q": {key: 1000.0 - n for n, key in enumerate(ranking)} or {"nothing": 1.0}}
    expected = ir_measures.calc_aggregate(list(THEIRS.values()), {"q": grades}, run)
    ours = measured(ranking, grades)
    assert set(ours) == set(METRICS)
    for name, measure in THEIRS.items():
        assert ours[name] == pytest.approx(expected[measure], abs=1e-9), name


def test_a_key_of_two_partitions_counts_once():
    assert measured(["a", "b", "a"], {"a": 1, "b": 1})["ndcg@10"] == pytest.approx(1.0)


def test_a_question_without_relevant_rows_scores_nothing():
    assert set(measured(["a"], {"a": 0}).values()) == {0.0}


def test_intervals_cover_the_true_mean_about_as_often_as_they_promise():
    dice = np.random.default_rng(7)
    means = [mean_of(dice.random(60).tolist()) for _ in range(200)]
    covered = sum(one.low <= 0.5 <= one.high for one in means)
    assert 180 <= covered <= 199
    assert all(one.low <= one.value <= one.high for one in means)


def test_the_same_values_have_the_same_interval_and_none_have_zero():
    values = [0.1, 0.9, 0.4] * 5
    assert mean_of(values) == mean_of(values)
    assert (mean_of([]).value, mean_of([0.25] * 9).low) == (0.0, 0.25)


ASKED = Questions(
    "q.jsonl",
    tuple(Labelled(f"q{n}", f"question <{n}>", {f"k{n}": 1}) for n in range(12)),
    "0",
)


def evaluation(index: str = "wines", generation: int = 1) -> Evaluation:
    """By words every row is first, by meaning each third one second and q11's not at all."""

    def find(text: str, mode: str) -> list[str]:
        key = f"k{text.strip('<question >')}"
        if mode == "keyword":
            return [key]
        return ["x"] if key == "k11" else (["x", key] if int(key[1:]) % 3 == 0 else [key])

    means, answered = evaluate(ASKED, ["vector", "keyword"], find)
    return Evaluation(index, "2026", generation, "q.jsonl", "0", means, answered)


def test_a_comparison_lists_the_questions_that_differ_most_first():
    one = evaluation()
    found = compare(one, "vector", one, "keyword")
    assert (found.better, found.worse) == (5, 0)
    assert found.most[0].id == "q11"
    assert (found.most[0].one, found.most[0].other) == (0.0, 1.0)
    assert found.differences["mrr"].value == pytest.approx((4 * 0.5 + 1) / 12)
    assert found.differences["ndcg@10"].low > 0
    assert compare(one, "keyword", one, "keyword").most == ()


def test_an_evaluation_survives_json_and_can_be_compared_with_another_generation():
    before, after = evaluation(), evaluation(generation=2)
    again = Evaluation.from_dict(before.as_dict())
    assert again.as_dict() == before.as_dict()
    assert "generation 2" in compare(again, "vector", after).other


def test_a_picture_shows_each_mean_and_escapes_names():
    drawn = as_svg(evaluation("<wines>"))
    assert drawn.count("<circle") == 6
    assert "&lt;wines&gt;" in drawn
    assert "<wines>" not in drawn
