"""Results and reports as a notebook shows them."""

from __future__ import annotations

import datetime
import subprocess
import sys
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from types import ModuleType
from typing import Any

import pytest

from lakewake.errors import SetupError
from lakewake.model.history import CommitMark, SyncHistory, SyncRecord
from lakewake.model.plan import Action
from lakewake.model.query import Hit, SearchResult
from lakewake.model.recommendation import AnsweredBy, Recommendation
from lakewake.model.report import PlanReport, StatusReport, SyncReport, VerifyReport
from lakewake.model.rows import RowId
from lakewake.show.html import SHOWN
from lakewake.show.line import LONGEST
from lakewake.show.notebook import Shown

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&"
NOW, BEFORE = "20250302120000123", "20250301120000000"
HIT = Hit("wine_0", "red", 0.81234, 0.81234, "Smoky. Red.", "text", 0, {"price": 20.5, "vat": None})
RESULT = SearchResult("wines", NOW, (HIT,))
SYNC = SyncReport(
    index="wines",
    action=Action.FOLLOW,
    why="1 commit",
    rows_changed=1234,
    rows_deleted=5,
    chunks_upserted=1300,
    chunks_deleted=7,
    embedded=77,
    reused=1223,
    from_instant=BEFORE,
    to_instant=NOW,
    seconds={"read": 1.5, "embed": 3.0, "total": 4.5},
)
PLAN = PlanReport("wines", Action.BUILD, "new", ("1", "2"), 4321, 0, 4000, 321, "", NOW)
STATUS = StatusReport(
    index="wines",
    built=True,
    table="lake/wines",
    store="lance://index",
    instant=BEFORE,
    newest_instant=NOW,
    lag_commits=2,
    lag_seconds=90.0,
    rows=130_000,
    chunks=140_000,
    generation=3,
    duplicates=0,
    quarantined=1,
    model={"name": "mini", "precision": "fp32"},
    would=Action.FOLLOW,
    why="2 commits",
)
VERIFY = VerifyReport("wines", NOW, 100, 120, missing=(RowId("red", "a"), RowId("", "b")))
ALL = [RESULT, SYNC, PLAN, STATUS, VERIFY]


class Page(HTMLParser):
    """The HTML of a cell: the elements open at each text, and their content."""

    VOID = ("br", "img", "hr", "input")

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.marked: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if "mark" in self.open:
            self.marked.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def page(value: Any) -> Page:
    return Page(value._repr_html_())


def texts_replaced(value: Any) -> Any:
    """The value with every text replaced by a hostile one."""
    names = ("index", "why", "table", "store", "instant", "newest_instant", "to_instant")
    hostile = {name: HOSTILE for name in names if hasattr(value, name)}
    if isinstance(value, SearchResult):
        hit = Hit(HOSTILE, HOSTILE, 1.0, 1.0, HOSTILE, HOSTILE, 0, {HOSTILE: HOSTILE})
        return replace(value, hits=(hit,), **hostile)
    if isinstance(value, VerifyReport):
        return replace(value, stale=(RowId(HOSTILE, HOSTILE),), **hostile)
    if isinstance(value, StatusReport):
        return replace(value, model={"name": HOSTILE}, **hostile)
    if isinstance(value, SyncReport):
        return replace(value, seconds={HOSTILE: 1.0, "total": 1.0}, **hostile)
    return replace(value, **hostile)


@pytest.mark.parametrize("value", ALL, ids=lambda v: type(v).__name__)
def test_no_text_is_ever_interpreted(value: Any) -> None:
    shown = page(texts_replaced(value))
    assert set(shown.tags) <= {"div", "span", "b", "p", "mark", "table", "tr", "td"}
    assert shown.attributes <= {"style", "class", "dir"}
    assert HOSTILE in shown.text


@pytest.mark.parametrize("value", ALL, ids=lambda v: type(v).__name__)
def test_the_html_of_a_value_is_self_contained_on_any_background(value: Any) -> None:
    html = value._repr_html_()
    assert html.startswith('<div class="lakewake"')
    for outside in ("<script", "<style", "<link", "http:", "https:", "url(", "#fff", "#000"):
        assert outside not in html


def test_a_result_shows_each_hit_with_its_score_text_and_payload() -> None:
    text = page(RESULT).text
    for part in ("wines", "1 row", "2025-03-02 12:00:00.123", "0.8123", "wine_0", "in red"):
        assert part in text
    assert "Smoky. Red." in text
    assert "price 20.5" in text
    assert "vat" not in text


@dataclass(frozen=True)
class Other(Shown):
    """A value of a shape that another module adds."""

    facts: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return self.facts


def test_the_highlight_is_marked_in_code_points() -> None:
    hit = replace(HIT, text="🍷 Dry. <Smoky> & red.", highlight=(7, 14))
    shown = page(replace(RESULT, hits=(hit,)))
    assert shown.marked == ["<Smoky>"]
    assert "🍷 Dry. <Smoky> & red." in "".join(shown.texts)


def test_hits_without_a_text_or_a_similarity_are_shown() -> None:
    hit = {**HIT.as_dict(), "text": None, "similarity": None, "score": 0.0}
    facts = {**RESULT.as_dict(), "hits": [hit]}
    assert "wine_0" in page(Other(facts)).text


def test_only_some_of_many_hits_are_shown_and_the_rest_is_counted() -> None:
    hits = tuple(replace(HIT, key=f"key-{n}.") for n in range(SHOWN + 1200))
    text = page(replace(RESULT, hits=hits)).text
    assert f"key-{SHOWN - 1}." in text
    assert f"key-{SHOWN}." not in text
    assert "1,250 rows" in text
    assert "and 1,200 more" in text


def test_an_empty_result_shows_a_message() -> None:
    assert "0 rows" in page(replace(RESULT, hits=())).text


def test_a_sync_shows_what_it_did_and_how_long_each_stage_took() -> None:
    text = page(SYNC).text
    for part in (
        "follow",
        "1,234 rows changed",
        "77 embedded",
        "1,223 reused",
        "4.5 s",
        "read 1.5 s",
    ):
        assert part in text
    assert "1,300 written, 7 deleted" in text


def test_a_sync_that_did_nothing_has_no_stages() -> None:
    assert "nothing" in page(SyncReport("wines", Action.NOTHING, "in step")).text


def test_a_plan_shows_its_counts() -> None:
    text = page(PLAN).text
    for part in ("build", "4,321 rows changed", "4,000 to embed", "321 reused", "2 commits"):
        assert part in text


def test_a_status_shows_how_far_the_index_is_behind() -> None:
    text = page(STATUS).text
    for part in (
        "2 commits behind, 90.0 s",
        "130,000 rows",
        "1 quarantined",
        "mini fp32",
        "follow",
    ):
        assert part in text
    assert "in step" in page(replace(STATUS, lag_commits=0, would=Action.NOTHING)).text
    assert "out of step" in page(replace(STATUS, lag_commits=0)).text
    assert "not built yet" in page(replace(STATUS, built=False)).text


def test_a_verification_lists_what_differs() -> None:
    text = page(VERIFY).text
    for part in ("differs", "100 rows", "2 missing", "red/a, b"):
        assert part in text
    assert "agrees with its table" in page(replace(VERIFY, missing=())).text


def test_only_some_of_many_differing_rows_are_listed_and_the_rest_is_counted() -> None:
    text = page(replace(VERIFY, missing=tuple(RowId("", f"k{n}") for n in range(5000)))).text
    assert f"k{SHOWN - 1} and {5000 - SHOWN:,} more" in text


WHEN = datetime.datetime(2025, 3, 2, 12, 0, 4, tzinfo=datetime.UTC)
RECOMMENDATION = Recommendation(
    query="something smoky",
    message="Take wine_0.",
    answered_by=AnsweredBy.EXTRACT,
    used=(HIT.row,),
    hits=(HIT,),
    instant=NOW,
)


def test_a_record_of_a_sync_is_shown_like_its_report_with_its_error() -> None:
    text = page(SyncRecord.of(SYNC, WHEN)).text
    assert "1,234 rows changed" in text
    assert "2025-03-02T12:00:04" in text
    failed = page(SyncRecord.of_failure("wines", OSError("the disk is <full>"), 2.0, WHEN)).text
    assert "failed 2.0 s" in failed
    assert "the disk is <full>" in failed


def test_a_recommendation_shows_its_message_and_its_rows() -> None:
    text = page(RECOMMENDATION).text
    for part in ("something smoky", "Take wine_0.", "extract", "0.8123"):
        assert part in text
    assert "reason" not in text
    assert "reason slow" in page(replace(RECOMMENDATION, reason="slow")).text


def test_the_message_of_a_recommendation_is_never_interpreted() -> None:
    hostile = replace(RECOMMENDATION, query=HOSTILE, message=HOSTILE, reason=HOSTILE)
    shown = page(hostile)
    assert set(shown.tags) <= {"div", "span", "b", "p", "table", "tr", "td"}
    assert shown.text.count(HOSTILE) == 3


def test_a_commit_of_the_table_is_shown_as_its_facts() -> None:
    assert "absorbed no" in page(CommitMark(NOW, "commit", WHEN, absorbed=False)).text


def test_a_value_of_any_other_shape_is_shown_as_its_facts() -> None:
    shown = page(Other({"column": "<price>", "min": 1.5, "values": [{"value": True, "count": 2}]}))
    assert "<price>" in shown.text
    assert "value: yes, count: 2" in shown.text


def test_the_html_module_is_not_loaded_before_a_notebook_needs_it() -> None:
    code = (
        "import sys, lakewake.model.query, lakewake.model.report;"
        "sys.exit('lakewake.show.html' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_row_as_long_as_a_book_is_cut_around_its_best_sentence() -> None:
    text = "word " * 40_000 + "A zeppelin. " + "more " * 40_000
    place = (text.index("A zepp"), text.index(" more"))
    hit = replace(HIT, key="k" * 9_000, text=text, highlight=place, payload={"note": "n" * 9_000})
    html = SearchResult("wines", "20250301120000000", (hit,))._repr_html_()
    assert ">A zeppelin.</mark>" in html
    assert len(html) < 10_000


RECORDS = SyncHistory(
    [
        SyncRecord.of(SYNC, datetime.datetime(2025, 3, 2, 12, 0, 9, tzinfo=datetime.UTC)),
        SyncRecord(
            datetime.datetime(2025, 3, 1, tzinfo=datetime.UTC), "wines", "failed", error="no disk"
        ),
    ]
)


def test_a_history_is_a_tuple_that_a_notebook_shows_as_a_table() -> None:
    assert tuple(RECORDS) == RECORDS
    assert len(RECORDS[:1]) == 1
    shown = page(RECORDS)
    assert shown.tags.count("tr") == 3
    for part in (
        "wines",
        "2 syncs",
        "1 failed",
        "2025-03-02 12:00:09",
        "1,234",
        "4.5 s",
        "no disk",
    ):
        assert part in shown.text
    assert "0 syncs" in page(SyncHistory()).text


def test_no_text_of_a_history_is_interpreted() -> None:
    record = replace(RECORDS[0], index=HOSTILE, action=HOSTILE, why=HOSTILE)
    shown = page(SyncHistory([record, replace(record, error=HOSTILE)]))
    assert set(shown.tags) <= {"div", "span", "b", "table", "tr", "td"}
    assert shown.text.count(HOSTILE) >= 5


LINES = [
    (RESULT, "wines: 1 row at 2025-03-02 12:00:00.123: wine_0 0.812"),
    (
        SYNC,
        "wines: follow, 1,234 rows changed, 5 rows deleted, 77 embedded, 1,223 reused, in 4.5 s, "
        "table at 2025-03-02 12:00:00.123",
    ),
    (SyncReport("wines", Action.NOTHING, "the index is at 1"), "wines: nothing: the index is at 1"),
    (
        PLAN,
        "wines: build is next, 2 commits, 4,321 rows changed, 0 rows deleted, 4,000 to embed, "
        "321 reused: new",
    ),
    (
        STATUS,
        "wines: 2 commits behind, 90.0 s, 130,000 rows, 140,000 chunks, "
        "table at 2025-03-02 12:00:00.123",
    ),
    (
        VERIFY,
        "wines: differs: 2 missing, 0 orphaned, 0 stale, 100 rows at 2025-03-02 12:00:00.123",
    ),
    (RECORDS[1], "wines: failed: no disk"),
    (SyncHistory(), "0 syncs"),
]


@pytest.mark.parametrize(("value", "line"), LINES, ids=lambda v: type(v).__name__)
def test_print_shows_a_value_in_one_line(value: Any, line: str) -> None:
    assert str(value) == line


@pytest.mark.parametrize("value", [*ALL, RECORDS, *RECORDS], ids=lambda v: type(v).__name__)
def test_a_printed_line_cannot_be_broken_or_hide_anything(value: Any) -> None:
    bad = "a\nb\x1b[31m\u202e" * 99
    names = ("index", "why", "table", "error", "newest_instant")
    given = {name: bad for name in names if hasattr(value, name)}
    odd = SyncHistory([replace(RECORDS[0], why=bad, index=bad)]) if value is RECORDS else None
    printed = str(odd or replace(value, **given))
    assert printed.isprintable()
    assert len(printed) <= LONGEST


class FakePandas(ModuleType):
    """Keeps what a DataFrame is made of."""

    def __init__(self) -> None:
        super().__init__("pandas")

    def DataFrame(self, rows: Any, columns: Any) -> Any:  # noqa: N802
        return rows, columns


def test_a_result_and_a_history_become_data_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", FakePandas())
    rows, columns = RESULT.to_pandas()
    own = ["_key", "_partition", "_score", "_similarity", "_text"]
    assert columns == [*own, "price", "vat"]
    assert rows == [
        dict(
            zip(
                columns, ["wine_0", "red", 0.81234, 0.81234, "Smoky. Red.", 20.5, None], strict=True
            )
        )
    ]
    assert SearchResult("wines", NOW, ()).to_pandas() == ([], own)
    rows, columns = RECORDS.to_pandas()
    assert [row["took"] for row in rows] == [4.5, 0.0]
    assert columns[:3] == ["time", "index", "action"]


def test_without_pandas_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SetupError, match="pandas is not installed") as refused:
        RESULT.to_pandas()
    assert "pip install pandas" in refused.value.hint
