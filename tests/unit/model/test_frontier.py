"""The frontier as the text that an index keeps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lakewake.model.frontier import Frontier, Refusal
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from support.sampling import rid

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


def test_a_frontier_without_a_token_keeps_its_old_format():
    assert Frontier.from_json(OLD) == FRONTIER
    assert FRONTIER.to_json() == OLD


def test_a_frontier_records_where_its_table_is():
    placed = replace(FRONTIER, location="lake/wines")
    assert Frontier.from_json(placed.to_json()).location == "lake/wines"
    assert Frontier.from_json(OLD).location == ""


def test_a_token_is_kept_and_makes_equal_frontiers_distinct():
    one, other = replace(FRONTIER, token="1"), replace(FRONTIER, token="2")
    assert Frontier.from_json(one.to_json()) == one
    assert len({one.to_json(), other.to_json(), FRONTIER.to_json()}) == 3


def many(count: int, start: int = 0) -> frozenset[RowId]:
    return frozenset(RowId("p", f"key {n}") for n in range(start, start + count))


class Kept:
    """Read the pages of a frontier, and record which were requested."""

    def __init__(self, frontier: Frontier) -> None:
        self._pages = frontier.new_pages(())
        self.asked: list[str] = []

    def __call__(self, names: Collection[str]) -> dict[str, str]:
        self.asked.extend(names)
        return {name: self._pages[name] for name in names}


def test_many_rows_are_kept_on_pages_beside_the_text():
    frontier = replace(FRONTIER, duplicates=many(100_000))
    text = frontier.to_json()
    assert len(text) < 10_000
    assert Frontier.from_json(text, Kept(frontier)) == frontier
    assert max(map(len, frontier.new_pages(()).values())) < 100_000


def test_one_row_is_found_by_reading_one_page():
    frontier = replace(FRONTIER, duplicates=many(100_000))
    read = Kept(frontier)
    again = Frontier.from_json(frontier.to_json(), read)
    assert len(again.duplicates) == 100_000
    assert RowId("p", "key 77") in again.duplicates
    assert RowId("p", "nobody") not in again.duplicates
    assert len(read.asked) <= 2


def test_one_more_row_changes_one_page():
    before = replace(FRONTIER, duplicates=many(100_000))
    after = replace(before, duplicates=before.duplicates | many(1, start=200_000))
    assert len(after.new_pages(before.pages)) == 1
    assert len(before.pages - after.pages) == 1


def test_unchanged_pages_are_neither_read_nor_written():
    frontier = replace(FRONTIER, duplicates=many(5_000))
    read = Kept(frontier)
    later = replace(Frontier.from_json(frontier.to_json(), read), sync=5)
    assert later.pages == frontier.pages
    assert later.new_pages(frontier.pages) == {}
    assert read.asked == []


def test_a_quarantine_keeps_its_reasons_on_pages():
    reasons = {row: Refusal(f"odd {row.key}", "1", 2) for row in many(3_000)}
    frontier = replace(FRONTIER, quarantine=reasons)
    again = Frontier.from_json(frontier.to_json(), Kept(frontier))
    assert dict(again.quarantine) == reasons
    assert again.duplicates == FRONTIER.duplicates


def test_few_rows_move_back_from_pages_into_the_text():
    frontier = replace(FRONTIER, duplicates=many(5_000))
    again = Frontier.from_json(frontier.to_json(), Kept(frontier))
    few = replace(again, duplicates=again.duplicates - many(4_999, start=1))
    assert few.pages == frozenset()
    assert Frontier.from_json(few.to_json()) == few


def test_a_long_frontier_of_an_earlier_version_is_written_back_unchanged():
    rows = ",".join(f'["p","key {n}"]' for n in sorted(range(5_000), key=str))
    old = OLD.replace('["p","a"]', rows)
    frontier = Frontier.from_json(old)
    assert frontier.duplicates == many(5_000)
    assert frontier.to_json() == old
    assert len(replace(frontier, sync=5).to_json()) < 2_000
