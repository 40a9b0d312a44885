"""Asks an OpenAI-compatible chat service: `POST {url}/chat/completions`, streamed or whole."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any

import httpx2

from lakewake.config.settings import RecommendSettings
from lakewake.errors import LakewakeError
from lakewake.net import deadline
from lakewake.net.deadline import TooLate
from lakewake.net.service import (
    REFUSAL,
    BadAnswer,
    Outcome,
    ServiceClient,
    endpoint,
    read_key,
    shortened,
    shown,
    status_hint,
    wait_to_retry,
)
from lakewake.recommend.answer import Delta, UnusableAnswer, read_stream, read_whole

TRIES = 3
AGAIN = "ask again, or name another model in [recommend]"
#: Most characters of an answer's text, and most bytes of its whole body.
LONGEST_ANSWER, LARGEST_BODY = 16_000, 4_000_000


class ChatError(LakewakeError):
    """The chat service failed or answered something unusable.

    Args:
        outcome: the outcome of the try, if another may succeed.
    """

    def __init__(self, fact: str, *, hint: str = "", outcome: Outcome | None = None) -> None:
        super().__init__(fact, hint=hint)
        self.outcome = outcome


class Chat:
    """Asks, retries as long as no part of an answer has arrived, and checks every answer.

    Args:
        sleep: how to wait between two tries.
    """

    def __init__(
        self, settings: RecommendSettings, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._settings = settings
        self._url = endpoint(settings.url, "chat/completions", "`url` in [recommend]")
        self._service = ServiceClient(self._url, lambda: self._key, settings.timeout)
        self._sleep = sleep

    def ask(self, messages: Sequence[Mapping[str, str]], *, stream: bool) -> Iterator[Delta]:
        """The parts of the answer as they arrive; the last one has the reason for its end.

        Everything takes at most `timeout` seconds, including retries and waits.

        Raises:
            ChatError: there is no answer, none in time, or one that cannot be used.
            SetupError: the service needs a key, and there is none.
        """
        ends = min(time.monotonic() + self._settings.timeout, deadline.ends())
        try:
            yield from self._parts(self._body(messages, stream), ends)
        except TooLate:
            raise ChatError(
                f"{self._shown} did not finish its answer within {self._settings.timeout:g} s",
                hint="raise `timeout` in [recommend]",
            ) from None

    def _body(self, messages: Sequence[Mapping[str, str]], stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._settings.name,
            "messages": list(messages),
            "stream": stream,
        }
        # Some services refuse one or the other, so they are sent only if they are set.
        if self._settings.max_tokens:
            body["max_tokens"] = self._settings.max_tokens
        if self._settings.temperature is not None:
            body["temperature"] = self._settings.temperature
        return body

    def _parts(self, body: Mapping[str, Any], ends: float) -> Iterator[Delta]:
        attempt = 0
        while True:
            length = 0
            try:
                for part in self._try(body, ends - time.monotonic()):
                    length += len(part.text)
                    yield part
                return
            except ChatError as error:
                wait = _wait(error, attempt, ends)
                if wait is None:
                    raise
                if length:
                    # The caller has read the first part: another answer would not continue it.
                    raise ChatError(
                        f"{self._shown} broke off in the middle of its answer", hint=AGAIN
                    ) from error
            self._sleep(wait)
            attempt += 1

    def _try(self, body: Mapping[str, Any], seconds: float) -> Iterator[Delta]:
        parts = self._service.exchange(body, seconds, LARGEST_BODY)
        try:
            with closing(parts):  # type: ignore[type-var]
                head = next(parts)
                assert isinstance(head, httpx2.Response)
                if not head.is_success:
                    raise self._refused(head, _beginning(parts))
                yield from _checked(_read(head, parts))
        except (UnusableAnswer, BadAnswer) as error:
            raise ChatError(f"{self._shown} {self._shortened(str(error))}", hint=AGAIN) from error
        except httpx2.TransportError as error:
            reason = self._shortened(str(error)) or type(error).__name__
            raise ChatError(
                f"{self._shown} did not answer: {reason}",
                hint="check that it runs and that `url` in [recommend] is right",
                outcome=error,
            ) from error
        except (httpx2.HTTPError, OSError, ValueError) as error:  # such as an invalid host name
            reason = self._shortened(str(error)) or type(error).__name__
            raise ChatError(
                f"cannot send a request to {self._shown}: {reason}",
                hint="correct `url` in [recommend]",
            ) from error

    def _refused(self, response: httpx2.Response, beginning: bytes) -> ChatError:
        fact = f"{self._shown} answered {response.status_code} {response.reason_phrase}".rstrip()
        message = self._shortened(beginning.decode(errors="replace"))
        if message:
            fact += f": {message}"
        if "Retry-After" in response.headers:
            fact += f" (Retry-After: {response.headers['Retry-After'][:40]})"
        hint = status_hint(response.status_code, self._settings.key_env)
        return ChatError(fact, hint=hint, outcome=response)

    def _shortened(self, text: str) -> str:
        return shortened(text, self._key)

    @cached_property
    def _key(self) -> str:
        return read_key(self._settings.key_env, self._url)

    @property
    def _shown(self) -> str:
        return shown(self._url)


def _wait(error: ChatError, attempt: int, ends: float) -> float | None:
    """Seconds until another try; None if it is useless or would come too late."""
    if error.outcome is None or attempt + 1 >= TRIES:
        return None
    wait = wait_to_retry(error.outcome, attempt, datetime.datetime.now(datetime.UTC))
    return wait if wait is not None and time.monotonic() + wait < ends else None


def _read(head: httpx2.Response, parts: Iterator[httpx2.Response | bytes]) -> Iterator[Delta]:
    """The parts of a successful answer, read according to its content type."""
    body = (part for part in parts if isinstance(part, bytes))
    kind = head.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        yield from read_stream(body)
    elif kind == "application/json":  # also if a stream was requested: not all services can
        yield read_whole(b"".join(body))
    else:
        named = f"with {kind[:60]}" if kind else "without a content type"
        raise UnusableAnswer(f"answered {named}, expected JSON")


def _beginning(parts: Iterator[httpx2.Response | bytes]) -> bytes:
    found = b""
    for part in parts:
        assert isinstance(part, bytes)
        found += part
        if len(found) >= REFUSAL:
            break
    return found[:REFUSAL]


def _checked(parts: Iterator[Delta]) -> Iterator[Delta]:
    """The parts, checked: the message is not empty, not too long and was not filtered."""
    length, blank = 0, True
    for part in parts:
        length += len(part.text)
        blank = blank and not part.text.strip()
        if length > LONGEST_ANSWER:
            raise UnusableAnswer(f"answered with more than {LONGEST_ANSWER:,} characters")
        if part.finish == "content_filter":
            raise UnusableAnswer("withheld its answer (content_filter)")
        yield part
    if blank:
        raise UnusableAnswer("answered with an empty message")
