"""A chat service that behaves and one that does not: a real HTTP server on this machine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lakewake.config.settings import RecommendSettings
from lakewake.errors import SetupError
from lakewake.net.deadline import TooLate, within
from lakewake.recommend.answer import Delta
from lakewake.recommend.chat import Chat, ChatError
from support.chat_service import (
    KEY_ENV,
    Service,
    breaks_off,
    drips,
    hangs_up,
    hangs_up_midway,
    never_ends,
    never_ends_in_one,
    says,
    sends,
    serving,
    stalls,
    stalls_midway,
    status,
)

MESSAGES = ({"role": "user", "content": "Which jacket?"},)
BOTH = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.delenv(KEY_ENV, raising=False)
    with serving() as running:
        yield running


def ask(service: Service, *, stream: bool = True, **given: Any) -> list[Delta]:
    return list(Chat(service.settings(**given), lambda _: None).ask(MESSAGES, stream=stream))


def text(pieces: list[Delta]) -> str:
    return "".join(piece.text for piece in pieces)


def failure(service: Service, *, stream: bool = True, **given: Any) -> ChatError:
    with pytest.raises(ChatError) as caught:
        ask(service, stream=stream, **given)
    return caught.value


@BOTH
def test_the_whole_answer_is_returned(service: Service, stream: bool) -> None:
    service.script = [says("Take the Gale Jacket [1], naïve one.")]
    pieces = ask(service, stream=stream)
    assert text(pieces) == "Take the Gale Jacket [1], naïve one."
    assert pieces[-1].finish == "stop"


def test_parts_arrive_before_the_answer_is_complete(service: Service) -> None:
    def waits_for_a_reader(handler: Any) -> None:
        handler.begin()
        handler.event("Take ")
        assert service.released.wait(10)
        handler.event("it [1].", "stop")

    service.script = [waits_for_a_reader]
    pieces = Chat(service.settings()).ask(MESSAGES, stream=True)
    assert next(pieces) == Delta("Take ")
    service.released.set()
    assert text(list(pieces)) == "it [1]."


def test_the_request_holds_only_what_is_configured(service: Service) -> None:
    service.script = [says("Yes [1]")]
    ask(service, max_tokens=77, temperature=0.5)
    ask(service, max_tokens=0)
    plain = {"model": "tiny", "messages": list(MESSAGES), "stream": True}
    assert service.requests == [{**plain, "max_tokens": 77, "temperature": 0.5}, plain]
    assert service.headers[0]["Accept-Encoding"] == "identity"
    assert "Authorization" not in service.headers[0]


def test_a_service_without_streaming_may_answer_at_once(service: Service) -> None:
    body = {"choices": [{"message": {"content": "In one [1]"}}]}
    service.script = [sends(json.dumps(body).encode(), "application/json; charset=utf-8")]
    assert text(ask(service, stream=True)) == "In one [1]"


def test_the_key_is_sent_and_never_shown(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, "sk-hidden")
    service.script = [status(401, "no such key: sk-hidden")]
    error = failure(service)
    assert service.headers[0]["Authorization"] == "Bearer sk-hidden"
    assert "401 Unauthorized: no such key: ***" in error.fact
    assert KEY_ENV in error.hint
    assert "sk-hidden" not in str(error)
    service.script = [sends(b'{"error": {"message": "sk-hidden is blocked"}}')]
    assert "sk-hidden" not in str(failure(service))


def test_a_remote_service_is_not_called_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_ENV, raising=False)
    chat = Chat(RecommendSettings(url="https://chat.invalid/v1", name="m", key_env=KEY_ENV))
    with pytest.raises(SetupError, match=KEY_ENV):
        list(chat.ask(MESSAGES, stream=True))


@BOTH
@pytest.mark.parametrize("first", [status(500), status(429, Retry_After="1"), hangs_up])
def test_a_transient_failure_is_retried(
    service: Service, first: Callable[[Any], None], stream: bool
) -> None:
    service.script = [first, says("Now [1]")]
    assert text(ask(service, stream=stream)) == "Now [1]"
    assert len(service.requests) == 2


def test_a_retry_waits_as_long_as_the_service_asks(service: Service) -> None:
    service.script = [status(429, Retry_After="7"), says("Now [1]")]
    waits: list[float] = []
    list(Chat(service.settings(), waits.append).ask(MESSAGES, stream=True))
    assert waits == [7]


def test_a_requested_wait_beyond_the_time_limit_is_an_error(service: Service) -> None:
    service.script = [status(429, "slow down", Retry_After="60")]
    error = failure(service)
    assert "429 Too Many Requests: slow down (Retry-After: 60)" in error.fact
    assert len(service.requests) == 1


@pytest.mark.parametrize("code", [400, 401, 403, 404, 302])
def test_a_permanent_refusal_is_not_retried(service: Service, code: int) -> None:
    service.script = [status(code, Location="http://127.0.0.1:9/")]
    assert f"answered {code}" in failure(service).fact
    assert len(service.requests) == 1


def test_a_service_that_keeps_failing_is_given_up(service: Service) -> None:
    service.script = [status(503, "<html>busy</html>", Content_Type="text/html")]
    assert "503 Service Unavailable: <html>busy</html>" in failure(service).fact
    assert len(service.requests) == 3


@pytest.mark.parametrize("answer", [breaks_off, hangs_up_midway])
def test_nothing_is_retried_once_a_part_has_arrived(
    service: Service, answer: Callable[[Any], None]
) -> None:
    service.script = [answer, says("Another answer [1]")]
    chat = Chat(service.settings(), lambda _: None).ask(MESSAGES, stream=True)
    assert next(chat).text == "The Gale Jacket is "
    with pytest.raises(ChatError, match="broke off in the middle"):
        list(chat)
    assert len(service.requests) == 1


@pytest.mark.parametrize("answer", [stalls, stalls_midway, drips])
def test_the_time_limit_is_for_the_whole_answer(
    service: Service, answer: Callable[[Any], None]
) -> None:
    service.script = [answer]
    began = time.monotonic()
    error = failure(service, timeout=0.4)
    assert time.monotonic() - began < 15  # it would stall for 30
    assert "within 0.4 s" in error.fact or "timed out" in error.fact


def test_a_connection_is_closed_at_its_time_limit(service: Service) -> None:
    service.script = [drips]
    failure(service, timeout=0.2)
    assert service.hung_up.wait(10)


def test_a_connection_is_closed_if_the_caller_stops_reading(service: Service) -> None:
    service.script = [never_ends]
    pieces = Chat(service.settings()).ask(MESSAGES, stream=True)
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert service.hung_up.wait(10)


@pytest.mark.parametrize(
    ("answer", "said"),
    [(never_ends, "more than 16,000 characters"), (never_ends_in_one, "more than 4,000,000 bytes")],
)
def test_an_endless_answer_is_cut_off(
    service: Service, answer: Callable[[Any], None], said: str
) -> None:
    service.script = [answer]
    assert said in failure(service).fact
    assert service.hung_up.wait(10)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (sends(b"<html>welcome</html>", "text/html"), "answered with text/html, expected JSON"),
        (sends(b"fine", ""), "answered without a content type, expected JSON"),
        (sends(b"{nonsense"), "not JSON"),
        (sends(b"\x1f\x8b\x08", Content_Encoding="gzip"), "an encoding that was not asked for"),
        (says(""), "an empty message"),
        (says(" \n "), "an empty message"),
        (says(None), "an empty message"),
        (says("I cannot", finish="content_filter"), "withheld"),
        (sends(b'{"error": {"message": "no such model"}}'), "reported an error: no such model"),
    ],
)
@BOTH
def test_an_unusable_answer_is_refused_with_the_reason(
    service: Service, answer: Callable[[Any], None], said: str, stream: bool
) -> None:
    service.script = [answer]
    assert said in failure(service, stream=stream).fact
    assert len(service.requests) == 1


def test_an_unreachable_address_is_named(service: Service) -> None:
    settings = RecommendSettings(url="http://127.0.0.1:9/v1", name="m", timeout=5)
    with pytest.raises(ChatError, match=r"127\.0\.0\.1:9/v1/chat/completions did not answer"):
        list(Chat(settings, lambda _: None).ask(MESSAGES, stream=True))


def test_an_error_inside_a_time_limit_is_raised_outside() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    stopped = threading.Event()
    items = within(5, broken(), stopped.set)
    assert next(items) == 1
    with pytest.raises(ZeroDivisionError):
        next(items)
    assert stopped.is_set()


def test_items_produced_in_time_can_be_read_later() -> None:
    made = threading.Event()

    def quick() -> Iterator[int]:
        yield from (1, 2)
        made.set()

    items = within(0.2, quick(), lambda: None)
    assert next(items) == 1
    assert made.wait(5)
    time.sleep(0.3)  # the time limit itself has to pass
    assert list(items) == [2]


def test_the_time_limit_ends_a_wait_for_nothing() -> None:
    release = threading.Event()

    def slow() -> Iterator[int]:
        release.wait(10)
        yield 1

    with pytest.raises(TooLate):
        list(within(0.05, slow(), release.set))
    assert release.is_set()
