"""Words and their scores: the same in any layout of the texts, and after any history."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from lakewake.model import vocabulary
from lakewake.model.asked import Kind, parse
from lakewake.store import words
from lakewake.store.words import (
    Corpus,
    Part,
    Scored,
    count_words,
    from_bytes,
    relevance,
    to_bytes,
)

WORD = st.sampled_from(["red", "Red", "rosé", "plum", "smoke_taint", "42", "葡萄酒", "ß", "!"])
TEXT = st.none() | st.lists(WORD, max_size=8).map(" ".join)
#: A text, and whether it is still there.
Texts = list[tuple[str | None, bool]]
TEXTS = st.lists(st.tuples(TEXT, st.booleans()), max_size=20)


def part_of(texts: Texts) -> Part:
    said = [text for text, _ in texts]
    counted = count_words(enumerate(said), len(said))
    return Part(counted, np.array([live for _, live in texts], bool))


@settings(deadline=None)
@given(pieces=st.lists(TEXTS, max_size=4), question=TEXT)
def test_scores_are_those_of_the_live_texts_alone_to_the_last_bit(
    pieces: list[Texts], question: str | None
) -> None:
    parts = [part_of(texts) for texts in pieces]
    found = Corpus(parts).best(question or "", 99)
    scored = [s for of, part in zip(found, parts, strict=True) for s in whole(of, part)[part.live]]
    live = [text for texts in pieces for text, there in texts if there]
    assert scored == relevance(live, question or "").tolist()


def whole(found: Scored, part: Part) -> np.ndarray:
    out = np.zeros(len(part.live))
    out[found.texts] = found.scores
    return out


@settings(deadline=None)
@given(pieces=st.lists(TEXTS, min_size=1, max_size=4), question=TEXT, data=st.data())
def test_the_best_are_found_without_looking_at_common_words_everywhere(
    pieces: list[Texts], question: str | None, data: st.DataObject
) -> None:
    parts = [part_of(texts) for texts in pieces]
    wanted = data.draw(st.integers(1, 5))
    masks = [data.draw(st.lists(st.booleans(), min_size=n, max_size=n)) for n in map(len, pieces)]
    passing = [np.array(mask, bool) for mask in masks]
    every = Corpus(parts).best(question or "", 99, passing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "COMMON", data.draw(st.integers(0, 5)))
        some = Corpus(parts).best(question or "", wanted, passing)
    ordered = sorted((s for found in every for s in found.scores.tolist()), reverse=True)
    least = ordered[min(wanted, len(ordered)) - 1] if ordered else 0
    for one, all_of_it in zip(some, every, strict=True):
        scored = dict(zip(*(of.tolist() for of in one), strict=True))
        known = dict(zip(*(of.tolist() for of in all_of_it), strict=True))
        assert scored.items() <= known.items()
        assert {n for n, score in known.items() if score >= least} <= set(scored)


def test_a_query_of_very_many_words_scores_as_one_of_few_words_would() -> None:
    texts = [f"red w{n} w{n + 1}" for n in range(200)]
    part = part_of([(text, n % 3 > 0) for n, text in enumerate(texts)])
    question = " ".join(f"w{n}" for n in range(0, 900, 3))
    [many] = Corpus([part]).best(question, 999)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "LOOKED_UP", 9_999)
        [few] = Corpus([part]).best(question, 999)
    assert len(many.texts) > 50
    assert all(np.array_equal(a, b) for a, b in zip(many, few, strict=True))


@settings(deadline=None)
@given(texts=TEXTS)
def test_word_counts_survive_serialization(
    texts: Texts,
) -> None:
    counted = part_of(texts).counted
    again = from_bytes(to_bytes(counted))
    assert again is not None
    assert again.words.equals(counted.words)
    assert all(np.array_equal(a, b) for a, b in zip(again[1:], counted[1:], strict=True))


@settings(deadline=None)
@given(texts=TEXTS, data=st.data())
def test_damaged_bytes_are_refused(texts: Texts, data: st.DataObject) -> None:
    content = bytearray(to_bytes(part_of(texts).counted))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    assert from_bytes(bytes(content)) is None
    assert from_bytes(bytes(content[:at])) is None


@pytest.mark.parametrize(
    "forged",
    [
        {"texts": np.array([0, 9])},
        {"texts": np.array([-1, 1])},
        {"texts": np.array([0])},
        {"starts": np.array([0, 1])},
        {"starts": np.array([0, 5, 2])},
        {"starts": np.array([1, 1, 2])},
        {"times": np.array([0.5, 0.5])},
        {"words": pa.array([1, 2])},
    ],
)
def test_offsets_out_of_range_are_refused(forged: dict[str, Any]) -> None:
    counted = count_words(enumerate(["red", "plum"]), 2)
    assert from_bytes(to_bytes(counted)) is not None
    assert from_bytes(to_bytes(counted._replace(**forged))) is None


def test_a_question_has_at_most_ten_beginnings_and_similar_words() -> None:
    asked = parse(" ".join(f"begin{n:02}* like{n:02}~" for n in range(20)), "none")
    kinds = [term.kind for term in asked.terms]
    assert (kinds.count(Kind.PREFIX), kinds.count(Kind.SIMILAR)) == (5, 5)
    assert len(asked.terms) == 40


def test_a_text_that_was_not_counted_differs_from_one_without_words() -> None:
    assert count_words([(0, ""), (2, None)], 4).lengths.tolist() == [0, -1, 0, -1]


def test_the_language_is_that_of_the_texts_that_are_left() -> None:
    german = ["der Wein ist rot und trocken", "die Frucht ist reif und nicht zu schwer"]
    english = ["the wine is red and it is dry", "the fruit is ripe and not too heavy"] * 3
    counted = words.count_words(enumerate(german + english), len(german + english))
    every = np.ones(len(german + english), bool)
    left = np.arange(len(every)) < len(german)
    assert words.language_of_parts([words.Part(counted, every)]) == "english"
    assert words.language_of_parts([words.Part(counted, left)]) == "german"
