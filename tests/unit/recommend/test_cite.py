"""Which rows an answer names, and which it only claims to."""

from __future__ import annotations

import pytest

from lakewake.model.rows import RowId
from lakewake.recommend.cite import check_citations
from support.chat_service import BOOTS, JACKET, TENT, make_hit

SHOWN = (JACKET, TENT, BOOTS)


def used(message: str) -> list[str]:
    return [row.key for row in check_citations(message, SHOWN).used]


def strange(message: str) -> list[str]:
    return list(check_citations(message, SHOWN).unknown)


@pytest.mark.parametrize(
    ("message", "keys"),
    [
        ("Take the jacket [1].", ["j1"]),
        ("The tent [2], then the jacket [1], and again the tent [2].", ["t1", "j1"]),
        ("Both [1][3].", ["j1", "b1"]),
        ("Both [1, 3]; or [3;2].", ["j1", "b1", "t1"]),
        ("All of them [1-3].", ["j1", "t1", "b1"]),
        ("See [row 2] and [#3].", ["t1", "b1"]),
        ("By its key [b1].", ["b1"]),
        ("A link [1](#one).", ["j1"]),
    ],
)
def test_citations_are_read_in_order(message: str, keys: list[str]) -> None:
    assert used(message) == keys
    assert strange(message) == []
    assert check_citations(message, SHOWN).reasons == ()


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("The kayak [4] and the jacket [1].", ["4"]),
        ("[0]", ["0"]),
        ("[2-5]", ["4", "5"]),
        ("[1-999999]", ["999999"]),
        ("Product [sku-999] is best.", ["sku-999"]),
        ("[17], [17] and [18]", ["17", "18"]),
    ],
)
def test_citations_of_rows_that_were_not_shown_are_reported_and_not_used(
    message: str, names: list[str]
) -> None:
    cited = check_citations(message, SHOWN)
    assert list(cited.unknown) == names
    assert not {row.key for row in cited.used} - {hit.key for hit in SHOWN}
    assert f"[{names[0]}]" in cited.reasons[0]
    assert "not shown" in cited.reasons[0]


@pytest.mark.parametrize("message", ["The jacket is warm.", "", "[sic]", "a [link](http://x/1)"])
def test_an_answer_without_a_citation_is_reported(message: str) -> None:
    cited = check_citations(message, SHOWN)
    assert cited.used == cited.unknown == ()
    assert cited.reasons == ("the model's answer names none of the rows that it was shown",)


def test_a_key_that_two_partitions_share_names_neither() -> None:
    twins = (make_hit("k1", "one"), make_hit("k1", "two"))
    assert check_citations("[k1]", twins).used == ()


def test_rows_are_reported_with_their_partition() -> None:
    assert check_citations("[1]", SHOWN).used == (RowId("p", "j1"),)


def test_a_flood_of_strange_citations_is_cut_short() -> None:
    cited = check_citations("".join(f"[{n}]" for n in range(10, 90)), SHOWN)
    assert cited.reasons[0].count("[") == 5
    assert "and 75 more" in cited.reasons[0]
