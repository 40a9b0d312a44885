"""The frontier as the text that an index keeps."""

from __future__ import annotations

from dataclasses import replace

from lakewake.model.frontier import Frontier, Refusal
from lakewake.model.timeline import TableIdentity
from sampling import rid

OLD = (
    '{"format":1,"table":{"name":"t","record_key":"k","partition_fields":"",'
    '"type":"COPY_ON_WRITE"},'
    '"instants":{"1":"2"},"in_flight":["3"],"schema":{"txt":"\\"string\\""},'
    '"duplicates":[["p","a"]],"quarantine":[["p","b","too odd","1",2]],"sync":4}'
)
FRONTIER = Frontier(
    TableIdentity("t", "k", "", "COPY_ON_WRITE"),
    {"1": "2"},
    ("3",),
    {"txt": '"string"'},
    frozenset([rid("a")]),
    {rid("b"): Refusal("too odd", "1", 2)},
    sync=4,
)


def test_a_frontier_without_a_token_reads_and_writes_as_it_always_did():
    assert Frontier.from_json(OLD) == FRONTIER
    assert FRONTIER.to_json() == OLD


def test_a_token_is_kept_and_makes_equal_frontiers_distinct():
    one, other = replace(FRONTIER, token="1"), replace(FRONTIER, token="2")
    assert Frontier.from_json(one.to_json()) == one
    assert len({one.to_json(), other.to_json(), FRONTIER.to_json()}) == 3
