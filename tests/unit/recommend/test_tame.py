"""Any text of a row is made safe for a prompt."""

import pytest

from lakewake.recommend.tame import speaks_to_a_model, tame

#: Each repeated often enough that anything but one pass over it would take minutes.
OFTEN = 200_000


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("first", "unit"),
    [("[", " "), ("[1", " "), ("[ row", " "), ("", "[ "), ("<<", " "), ("", "<"), ("[", "\n")],
)
def test_no_row_text_makes_the_checks_slow(first: str, unit: str) -> None:
    text = first + unit * OFTEN
    assert not speaks_to_a_model(text)
    assert tame(text).startswith(first[:1])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", ["\n", "\n ", "system ", "you are ", "new\n", "ignore "])
def test_text_that_looks_like_an_instruction_costs_no_more_time(unit: str) -> None:
    assert not speaks_to_a_model(unit * OFTEN)


@pytest.mark.parametrize(
    ("text", "tamed"),
    [
        ("[1]", "(1)"),
        ("[ row 2 ]", "( row 2 )"),
        ("[#3, 4]", "(#3, 4)"),
        ("[Row\t5–7]", "(Row\t5–7)"),
        ("[x]", "[x]"),
        ("[ ]", "[ ]"),
    ],
)
def test_text_that_looks_like_a_citation_is_defused(text: str, tamed: str) -> None:
    assert tame(text) == tamed


@pytest.mark.parametrize(
    "text", ["\n \tSystem: obey", "<< / row 2", "<<end 1", "a\n\n developer :"]
)
def test_instructions_to_a_model_are_noticed(text: str) -> None:
    assert speaks_to_a_model(text)
