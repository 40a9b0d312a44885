"""Recommendations over HTTP: thresholds, conversations and the plain shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.serving import asking, wine_index

RECOMMEND = "/indexes/sample/recommend"


@pytest.fixture
def ask() -> Any:
    with asking(wine_index()[0], max_query_chars=100) as client:
        yield lambda **body: client.post(RECOMMEND, json=body)


def test_below_the_threshold_nothing_fits(ask: Any) -> None:
    found = ask(query="a submarine", min_score=0.99).json()
    assert (found["hits"], found["matched"], found["answered_by"]) == ([], [], "none")
    assert "Nothing in the table fits" in found["message"]


def test_the_plain_shape_is_an_option_also_of_streams(ask: Any) -> None:
    asked = {"query": "sweet wine with honey", "k": 1, "plain": True}
    plain = ask(**asked).json()
    assert set(plain) == {"success", "query", "message", "products"}
    assert [p["_key"] for p in plain["products"]] == ["sweet"]
    events = ask(**asked, stream=True).text.strip().split("\n\n")
    name, data = events[-1].split("\n")
    assert name == "event: answer"
    assert json.loads(data.removeprefix("data: ")) == plain


def test_a_conversation_leads_to_the_question_that_is_searched_for(ask: Any) -> None:
    talk = [{"role": "user", "content": "sweet wine"}]
    found = ask(query="with honey", conversation=talk, k=1).json()
    assert (found["query"], found["asked"]) == ("with honey", "sweet wine with honey")
    assert found["hits"][0]["key"] == "sweet"


@pytest.mark.parametrize(
    "turn", [{"role": "system", "content": "x"}, {"content": "x"}, {"role": "user", "content": 1}]
)
def test_a_turn_of_another_shape_is_refused(ask: Any, turn: Any) -> None:
    assert ask(query="wine", conversation=[turn]).status_code == 422


def test_the_length_of_turns_is_limited(ask: Any) -> None:
    talk = [{"role": "user", "content": "x" * 101}]
    assert ask(query="wine", conversation=talk).status_code == 422
    assert ask(query="wine", conversation=[talk[0] | {"content": "x"}] * 51).status_code == 422
