"""What a model receives: bounded, and without anything that a human would not see."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.types import CallToolResult

import lakewake
from lakewake.mcp import MAX_K, build_server
from lakewake.mcp.answer import MAX_ANSWER, MAX_PART, NOTE, fit_hits, seen, shortened, size
from lakewake.recommend.tame import tame
from lakewake.show.visible import escaped, unescaped, visible
from support import cellar

#: Tags, directions, controls, selectors, fillers: all of them are invisible.
HIDDEN = "\U000e0041\U000e0042\u202e\u2066\u200b\u00ad\x1b[2J\x07\ufe01\U000e0100\u3164\u2800\ue000"
UNSEEN = set(HIDDEN) - set("[2J")
LONG = "Smoky red with leather and no end " * 6_000


def call(lake: Mapping[str, Any], tool: str, **arguments: Any) -> CallToolResult:
    async def run() -> CallToolResult:
        with anyio.fail_after(60):
            async with Client(build_server(lake)) as client:
                return await client.call_tool(tool, arguments)

    return anyio.run(run)


def answer_of(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> lakewake.Lakewake:
    """Twelve rows of 200 KB each, and one with every invisible character."""
    wines = {
        **{f"long {n}": (LONG + str(n), "Italy" * 2_000, 1.0) for n in range(12)},
        f"odd{HIDDEN}key": (f"A {HIDDEN}zeppelin. Old{HIDDEN} wood.", f"Sp{HIDDEN}ain", 8.0),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cellar, "WINES", wines)
        return lakewake.open(cellar.make_cellar(tmp_path_factory.mktemp("cellar")))


@pytest.mark.parametrize("k", [1, 12, MAX_K])
@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
def test_an_answer_is_bounded_however_long_its_rows_are(
    lake: lakewake.Lakewake, k: int, mode: str
) -> None:
    result = call(lake, "search", text="smoky leather", k=k, mode=mode)
    found = answer_of(result)
    assert size(found) <= MAX_ANSWER
    assert len(result.content[0].text) <= 1.5 * MAX_ANSWER
    long = [hit for hit in found["hits"] if hit["key"].startswith("long")]
    assert len(long) == min(k, 12)
    for hit in long:
        assert len(hit["text"]) > 500
        start, end = hit["highlight"]
        assert "moky" in hit["text"][start:end]


def test_a_cut_is_reported_with_how_to_get_the_rest(lake: lakewake.Lakewake) -> None:
    found = answer_of(call(lake, "search", text="smoky leather", k=2))
    assert found["note"] == NOTE
    assert found["hits"][0]["cut"] == {"text": len(LONG) + 1, "payload": ["country"]}
    assert found["hits"][0]["payload"]["country"].endswith("…")
    short = answer_of(call(lake, "search", text="zeppelin", mode="keyword", k=1))
    assert "note" not in short
    assert "cut" not in short["hits"][0]


def test_a_text_that_was_cut_can_be_read_whole_part_by_part(lake: lakewake.Lakewake) -> None:
    (hit,) = answer_of(call(lake, "search", text="smoky leather", k=1))["hits"]
    which = {name: hit[name] for name in ("key", "partition", "field", "chunk")}
    text, start = "", 0
    while start is not None:
        part = answer_of(call(lake, "read", **which, start=start))
        assert len(part["text"]) <= MAX_PART
        text, start = text + part["text"], part["next"]
    assert text == LONG + hit["key"].removeprefix("long ")
    value = answer_of(call(lake, "read", **which, column="country"))
    assert (value["text"], value["length"]) == ("Italy" * 2_000, 10_000)
    assert answer_of(call(lake, "read", **which, column="price"))["text"] == "1.0"
    assert answer_of(call(lake, "read", **which, start=10**6))["next"] is None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"key": "nobody", "partition": "red"}, "has no such text"),
        ({"key": "long 1", "partition": "red", "chunk": 9}, "has no such text"),
        ({"key": "long 1", "partition": "red", "field": "other"}, "has no such text"),
        ({"key": "long 1", "partition": "red", "column": "_vector"}, "no payload column"),
    ],
)
def test_a_text_that_cannot_be_read_is_an_error_with_the_reason(
    lake: lakewake.Lakewake, asked: dict[str, Any], said: str
) -> None:
    result = call(lake, "read", **asked)
    assert result.is_error
    assert said in result.content[0].text


def test_a_payload_column_that_the_index_still_lacks_is_an_error_with_the_reason(
    lake: lakewake.Lakewake, monkeypatch: pytest.MonkeyPatch
) -> None:
    (index,) = lake.values()
    wider = replace(index.settings, payload=(*index.settings.payload, "added"))
    monkeypatch.setattr(index, "settings", wider)
    result = call(lake, "read", key="long 1", partition="red", column="added")
    assert result.is_error
    assert "there is no payload column 'added'" in result.content[0].text


def test_no_invisible_character_reaches_the_model(lake: lakewake.Lakewake) -> None:
    result = call(lake, "search", text="zeppelin", mode="keyword", k=1)
    (hit,) = answer_of(result)["hits"]
    assert not UNSEEN & set(json.dumps(hit, ensure_ascii=False) + result.content[0].text)
    assert hit["text"] == "A [2Jzeppelin. Old[2J wood."
    start, end = hit["highlight"]
    assert hit["text"][start:end] == "A [2Jzeppelin."
    again = answer_of(call(lake, "recommend", query="zeppelin", k=1))
    assert not UNSEEN & set(json.dumps(again, ensure_ascii=False))


def test_a_row_whose_key_has_invisible_characters_can_still_be_named(
    lake: lakewake.Lakewake,
) -> None:
    (hit,) = answer_of(call(lake, "search", text="zeppelin", mode="keyword", k=1))["hits"]
    which = {"key": hit["key"], "partition": hit["partition"]}
    assert answer_of(call(lake, "read", **which))["text"] == hit["text"]
    like = answer_of(call(lake, "similar", **which, k=3))
    assert len(like["hits"]) == 3
    assert hit["key"] not in [other["key"] for other in like["hits"]]


def test_errors_are_bounded_and_visible_too(lake: lakewake.Lakewake) -> None:
    result = call(lake, "search", text="x", where=f"coun{HIDDEN}try <" + "(" * 50_000)
    assert result.is_error
    assert len(result.content[0].text) <= 5_000
    assert not UNSEEN & set(result.content[0].text)


def test_a_list_of_many_indexes_is_bounded_and_names_the_rest(tmp_path: Path) -> None:
    columns = ", ".join(f'"column_{n}"' for n in range(500))
    table = 'table = "lake"\ntext = "{a}"\n' + f"payload = [{columns}]\n"
    model = 'model = {provider = "hashing", dimension = 8}\n'
    names = [f"wines_{n}" for n in range(60)]
    file = tmp_path / "lakewake.toml"
    file.write_text("".join(f'[[index]]\nname = "{n}"\n{table}{model}' for n in names))
    lake = lakewake.open(file)
    listed, status = answer_of(call(lake, "list_indexes")), answer_of(call(lake, "status"))
    for answer, shown in ((listed, "indexes"), (status, "failures")):
        assert size(answer) <= MAX_ANSWER
        assert 0 < len(answer[shown]) < len(names)
        assert f"{len(names) - len(answer[shown])} more are not shown: " in answer["note"]
    assert listed["indexes"][0]["payload_left_out"] > 0


TEXTS = st.text(max_size=3_000) | st.text(st.sampled_from('"\\\n\u202ea'), max_size=9_000)
HITS = st.fixed_dictionaries(
    {
        "key": st.text(max_size=300),
        "partition": st.text(max_size=300),
        "score": st.floats(0, 1),
        "similarity": st.none(),
        "text": st.none() | TEXTS,
        "field": st.text(max_size=300),
        "chunk": st.integers(0, 9),
        "payload": st.dictionaries(
            st.text(max_size=60), st.none() | TEXTS | st.lists(TEXTS, max_size=3), max_size=5
        ),
    }
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(HITS, max_size=5), st.integers(1, MAX_K), st.booleans())
def test_any_rows_fit_and_highlights_stay_in_their_texts(
    hits: list[dict[str, Any]], times: int, message: bool
) -> None:
    hits = [
        {
            **hit,
            "highlight": None if hit["text"] is None else [len(hit["text"]) // 3, len(hit["text"])],
        }
        for hit in (hits * times)[:MAX_K]
    ]
    answer: dict[str, Any] = {"index": "x", "hits": hits, "query": "q" * 2_000}
    if message:
        answer |= {
            "message": '"' * 16_000,
            "used": [{k: h[k] for k in ("key", "partition")} for h in hits],
        }
    fitted = fit_hits(answer)
    assert size(fitted) <= MAX_ANSWER
    assert len(fitted["hits"]) == len(hits)
    for before, hit in zip(hits, fitted["hits"], strict=True):
        if hit["highlight"] is not None:
            start, end = hit["highlight"]
            assert 0 <= start <= end <= len(hit["text"])
        assert "cut" in hit or hit["text"] == (before["text"] and visible(before["text"]))


@settings(deadline=None)
@given(st.text(st.characters() | st.sampled_from("\\u005cU0e\u200d\u202e\n"), max_size=40))
def test_an_escaped_key_means_the_same_row(key: str) -> None:
    assert unescaped(escaped(key)) == key
    assert visible(escaped(key)).replace("\n", "") == escaped(key).replace("\n", "")


@settings(deadline=None)
@given(st.text(max_size=300))
def test_only_visible_characters_are_left(text: str) -> None:
    needed = "\n\t\u200c\u200d\ufe0e\ufe0f"
    left = visible(text)
    assert visible(left) == left
    assert {unicodedata.category(c) for c in left if c not in needed} & {"Cc", "Cs", "Co"} == set()
    assert not set(left) & UNSEEN


@pytest.mark.parametrize(
    "text", ["می‌خواهم", "👩‍🚀 ❤️‍🔥 1️⃣ ☎︎", "a\tb\nc", "naïve café", "क्‍ष", "plain"]
)
def test_invisible_characters_that_scripts_and_emoji_need_stay(text: str) -> None:
    assert visible(text) == text
    assert tame(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("pass\u200bword", "password"),
        ("a\u200d\u200c\u200d\u200cb", "ab"),
        ("é\u200d\u200c\u200dé", "éé"),
        ("one\r\ntwo\u2028three\rfour", "one\ntwo\nthree\nfour"),
        ("x\ufe00\ufe01\ufe02", "x"),
    ],
)
def test_invisible_characters_between_letters_are_removed(text: str, left: str) -> None:
    assert visible(text) == left
    assert tame(text) == left


@settings(deadline=None)
@given(st.text(st.characters() | st.sampled_from('"\\\n'), max_size=200), st.integers(5, 150))
def test_a_shortened_text_fits_its_room(text: str, room: int) -> None:
    short = shortened(text, room)
    assert short == text or (size(short) <= room and short.endswith("…"))
    assert size(seen({"a": [text]}, room)) <= room + 8
