"""The one splitter of sentences, shared by highlights and by answers without a model."""

from __future__ import annotations

import textwrap
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewake.model.sentences import sentences
from lakewake.recommend.extract import extract
from support.chat_service import make_hit


def split(text: str) -> list[str]:
    return [text[a:b] for a, b in sentences(text)]


@pytest.mark.parametrize(
    "whole",
    [
        ["One.", "Two!", "Three?"],
        ["3.5 stars…", "“Really?”", "Yes"],
        ["no end"],
        [],
        ["…"],
        ["It was found by J. R. Smith.", "He wrote to George R. R. Martin."],
        ["Ask Dr. Jones or Mrs. Hill, e.g. today.", "It is urgent."],
        ["See No. 5 and Fig. 3, pp. 12 to 14.", "She said no.", "Then she left."],
        ["Open from 5 p.m. to 11 p.m. on weekdays.", "Closed at 5 p.m.", "We left."],
        ["Sold by Acme Inc. in the U.S. Army shops.", "Bring wine, bread, etc.", "Come early."],
        ["Rich in vitamin C.", "It keeps well."],
        ["Founded 1999.", "Sold 2004."],
        ["It costs approx. 20 EUR.", "Cheap!"],
        ["(It rained.)", "“Go on.”", "She went."],
        ["暖かい上着です。", "防水です。"],
    ],
)
def test_a_text_is_cut_into_its_sentences(whole: list[str]) -> None:
    joined = "".join if whole and whole[0].endswith("。") else " ".join
    assert split(joined(whole)) == whole


@pytest.mark.parametrize("blank", ["", " ", " \n\n "])
def test_a_blank_text_has_no_sentences(blank: str) -> None:
    assert split(blank) == []


WRAPPED = [
    "The cellar was dug by J. R. Smith in the year of the great flood, and nobody has entered it "
    "since the door was walled up for good.",
    "What lies in there is said to be worth more than the house above, e.g. wine of good years.",
    "Nobody knows.",
]


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_hard_wrapped_text_has_whole_sentences(width: int, end: str) -> None:
    text = end.join(textwrap.wrap(" ".join(WRAPPED), width))
    assert [" ".join(s.split()) for s in split(text)] == WRAPPED


def test_a_paragraph_ends_its_last_sentence() -> None:
    one, two = "\n".join(textwrap.wrap("a good " * 40, 60)), "And then another one."
    assert split(f"{one}\n\n{two}") == [one, two]
    assert split(f"{one}\n \t\n{two}") == [one, two]


def test_lines_ended_on_purpose_are_separate_sentences() -> None:
    lines = [
        "Gale Jacket",
        "A warm jacket for wind and rain, with a hood that can be folded away",
        "Made in Italy",
        "- machine washable",
        "- two pockets",
        "1. Unfold the hood",
        "2. Close the zip",
    ]
    assert split("\n".join(lines)) == lines
    assert split("red\nblue\ngreen") == ["red", "blue", "green"]


@settings(deadline=None)
@given(st.text(st.sampled_from("aB1 .!?…\n\r\t\"'”)-。"), max_size=80))
def test_sentences_keep_the_order_and_everything_but_blanks(text: str) -> None:
    spans = sentences(text)
    assert all(a < b for a, b in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert "".join("".join(split(text)).split()) == "".join(text.split())


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "unit", [".", ". ", "\n", "x.", "A. ", "1. ", "a\n", f"{'x' * 50}\n", "。"]
)
def test_a_long_run_of_any_character_is_split_quickly(unit: str) -> None:
    assert sentences(unit * 200_000 + "x")


def test_an_answer_quotes_whole_sentences_of_hard_wrapped_text() -> None:
    hit = make_hit("x", "\n".join(textwrap.wrap(" ".join(WRAPPED), 60)))
    found = extract("who dug the cellar", (hit,))
    assert found is not None
    assert found.message == f"{WRAPPED[0]} [1]"
