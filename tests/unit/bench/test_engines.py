"""Which of the engines' ways to ask are compared with ours."""

from __future__ import annotations

from bench.engines import at_best, better, quickest


def way(recall: float, median: float) -> dict[str, float]:
    return {"recall": recall, "median": median, "p99": median * 2}


def test_the_best_recall_counts_and_then_the_time() -> None:
    ways = {"40": way(0.98, 1.0), "100": way(0.99, 3.0), "200": way(0.99, 2.0)}
    assert at_best(ways) == way(0.99, 2.0)
    assert at_best({}) is None


def test_a_library_is_as_quick_as_it_is_with_enough_recall() -> None:
    ways = {
        "hnswlib, ef 20": way(0.97, 0.05),
        "hnswlib, ef 40": way(0.992, 0.1),
        "usearch f16, expansion 40": way(0.99, 0.2),
        "numpy exact": way(1.0, 0.01),
    }
    assert quickest(ways, ("hnswlib", "usearch")) == way(0.992, 0.1)
    assert quickest(ways, ("usearch",)) == way(0.99, 0.2)
    assert quickest({"hnswlib, ef 20": way(0.5, 0.1)}, ("hnswlib",)) is None


def test_of_two_rounds_the_quicker_one_counts_for_each_way() -> None:
    one = {"a": way(1.0, 1.0), "b": way(1.0, 5.0)}
    other = {"a": way(1.0, 2.0), "b": way(1.0, 4.0)}
    assert better(one, other) == {"a": way(1.0, 1.0), "b": way(1.0, 4.0)}
    assert better({}, one) == one
