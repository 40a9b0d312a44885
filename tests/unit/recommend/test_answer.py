"""How the bytes of a chat service are read."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewake.recommend.answer import Delta, UnusableAnswer, read_events, read_stream, read_whole

STREAM = (
    b": hello\r\n\r\nevent: message\r\n"
    b'data: {"choices": [{"delta": {"role": "assistant"}}]}\r\n\r\n'
    b'data:{"choices": [{"delta": {"content": "W\xc3\xa4rm"}}]}\n\n'
    b'data: {"choices": [{"delta":\ndata: {"content": " [1]"}}]}\r\r'
    b'data: {"choices": null, "usage": {"total_tokens": 3}}\n\n'
    b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


def event(**choice: object) -> bytes:
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def read(*chunks: bytes) -> list[Delta]:
    return list(read_stream(chunks))


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_a_stream_is_read_the_same_however_it_is_split(cuts: list[int]) -> None:
    marks = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[a:b] for a, b in pairwise(marks)]
    assert "".join(p.text for p in read_stream(chunks)) == "Wärm [1]"


def test_the_last_event_gives_the_reason_for_the_end() -> None:
    assert read(STREAM)[-1] == Delta("", "stop")
    assert read(event(delta={"content": "a"}, finish_reason="length")) == [Delta("a", "length")]
    assert read(event(delta={"content": "a"}), b"data: [DONE]\n\n")[-1] == Delta("", "stop")


def test_nothing_after_the_end_of_a_stream_is_read() -> None:
    assert read(event(delta={"content": "a"}, finish_reason="stop"), b"data: {nonsense\n\n")


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (b"", "broke off"),
        (event(delta={"content": "half"}), "broke off"),
        (event(delta={"content": "half"}) + b"data: [DONE]\n", "broke off"),
        (b"data: {\n\n", "not JSON"),
        (b"data: [1]\n\n", "not an object"),
        (b'data: {"error": {"message": "overloaded"}}\n\n', "overloaded"),
        (b'data: {"error": "overloaded"}\n\n', "overloaded"),
        (b'data: {"choices": [7]}\n\n', "choices in an unknown form"),
        (b'data: {"choices": {"a": 1}}\n\n', "choices in an unknown form"),
        (event(delta={"content": ["a"]}), "not text"),
        (b"data: \xff\n\n", "UTF-8"),
        (b"data: " + b"[" * 200_000 + b"\n\n", "not JSON"),
    ],
)
def test_an_unusable_stream_is_refused(stream: bytes, said: str) -> None:
    with pytest.raises(UnusableAnswer, match=said):
        read(stream)


def test_an_answer_that_is_not_streamed_is_read() -> None:
    body = {"choices": [{"message": {"content": "Warm [1]"}, "finish_reason": "length"}]}
    assert read_whole(json.dumps(body).encode()) == Delta("Warm [1]", "length")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"null", "not an object"),
        (b"{}", "without a choice"),
        (b'{"choices": []}', "without a choice"),
        (b'{"error": {"message": "no such model"}}', "no such model"),
        (b'{"choices": [{"message": {"content": 3}}]}', "not text"),
        (b"[" * 200_000, "not JSON"),
    ],
)
def test_an_unusable_answer_that_is_not_streamed_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(UnusableAnswer, match=said):
        read_whole(body)


def test_half_a_character_becomes_a_replacement_character() -> None:
    body = b'{"choices": [{"message": {"content": "a\\ud800b"}}]}'
    assert read_whole(body).text.encode() == b"a?b"


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    assert all(isinstance(e, str) for e in _events_or_none(data))


def _events_or_none(data: bytes) -> list[str]:
    try:
        return list(read_events([data]))
    except UnusableAnswer:
        return []
