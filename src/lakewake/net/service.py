"""The one client for the HTTP services that Lakewake uses: to embed, to re-rank, to answer.

A whole answer has a time limit and a size limit. It must be uncompressed, since a few compressed
bytes could expand to more than fits into memory. A request that cannot end within the caller's
deadline (`deadline.at_most`) is given up.
"""

from __future__ import annotations

import datetime
import ipaddress
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from email.utils import parsedate_to_datetime
from functools import cache
from ssl import SSLContext
from typing import Any

import httpx2

from lakewake.errors import ConfigError, SetupError
from lakewake.net import deadline
from lakewake.net.deadline import TooLate, within

#: Seconds. If a service asks for a longer wait than the last, there is no further try.
FIRST_WAIT, LONGEST_BACK_OFF, LONGEST_WAIT = 0.5, 30.0, 300.0
#: Most seconds between two tries while a caller waits: after that, the thread is better freed.
QUESTION_WAIT = 2.0
#: Statuses below 500 for which another try may succeed.
RETRIED = {408, 429}
#: Bytes of a refusal that are read.
REFUSAL = 2_000
#: Characters of a service's own message that are shown.
SHOWN_CHARACTERS = 200
#: What to do about a refusal, by its status.
_HINTS = {
    401: "check that {key_env} holds a valid key",
    403: "check that the key in {key_env} may use this model",
    404: "check that `url` ends in the service's /v1 and `name` is a model it has",
    429: "wait, then run the command again",
}
_OTHER_HINT = "check the service's log, then run the command again"
#: Headers that describe the bytes on the wire, not those that were read.
FRAMING = {"content-encoding", "content-length", "transfer-encoding"}

Outcome = httpx2.Response | httpx2.TransportError


class BadAnswer(Exception):
    """The answer is too long, or compressed, and is not read any further."""


class NoAnswer(Exception):
    """The service did not answer; `error` is the error of the last try."""

    def __init__(self, error: httpx2.TransportError, tries: int) -> None:
        super().__init__(str(error) or type(error).__name__)
        self.error, self.tries = error, tries


class ServiceClient:
    """Posts JSON to one address.

    Args:
        key: returns the key to send, '' for none; called when it is first needed.
        timeout: seconds for one whole answer.
        sleep: how to wait between two tries.
    """

    def __init__(
        self,
        url: httpx2.URL,
        key: Callable[[], str],
        timeout: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url
        self._key, self._timeout, self._sleep = key, timeout, sleep
        self._idle: list[_Lane] = []
        self._lock = threading.Lock()

    def post(self, body: Mapping[str, Any], *, largest: int, tries: int) -> httpx2.Response:
        """The answer, a success or a refusal. Only the beginning of a refusal is read.

        Raises:
            BadAnswer: the answer is too long, or compressed.
            NoAnswer: there is none.
            httpx2.HTTPError: no request can be sent to the address.
        """
        for attempt in range(tries):
            outcome = self._outcome(body, largest)
            wait = wait_to_retry(outcome, attempt, datetime.datetime.now(datetime.UTC))
            if wait is None or attempt + 1 == tries or wait > longest_wait():
                break
            self._sleep(wait)
        if isinstance(outcome, httpx2.TransportError):
            raise NoAnswer(outcome, attempt + 1) from outcome
        return outcome

    def exchange(
        self, body: Mapping[str, Any], seconds: float, largest: int
    ) -> Iterator[httpx2.Response | bytes]:
        """One try: first the answer's status and headers, then its bytes as they arrive.

        Raises:
            BadAnswer: the answer is too long, or compressed.
            httpx2.HTTPError: there is none.
            TooLate: it was not complete after `seconds`.
        """
        with self._lock:
            lane = self._idle.pop() if self._idle else _Lane()
        request = lane.client.build_request(
            "POST",
            self.url,
            json=body,
            headers=self._headers(),
            timeout=seconds,
            extensions={"trace": lane.go_on},
        )
        yield from within(seconds, lane.talk(request, largest), lambda: self._over(lane))

    def _headers(self) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity"}
        if key := self._key():
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _over(self, lane: _Lane) -> None:
        """Keep the connection for the next request; close it if its answer was not read whole."""
        if not lane.done:
            lane.leave()
            return
        with self._lock:
            self._idle.append(lane)

    def _outcome(self, body: Mapping[str, Any], largest: int) -> Outcome:
        seconds = min(self._timeout, deadline.ends() - time.monotonic())
        if seconds <= 0:
            return httpx2.ReadTimeout("no time is left")
        try:
            with closing(self.exchange(body, seconds, largest)) as parts:  # type: ignore[type-var]
                return whole(parts)
        except TooLate:
            return httpx2.ReadTimeout("timed out")
        except httpx2.TransportError as error:
            return error


class _Lane:
    """One connection, used by one request at a time.

    Attributes:
        done: whether the last answer was read to its end.
    """

    def __init__(self) -> None:
        limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
        self.client = httpx2.Client(verify=_tls(), limits=limits)
        self.done, self._left = False, False

    def talk(self, request: httpx2.Request, largest: int) -> Iterator[httpx2.Response | bytes]:
        """Status and headers of the answer, then its bytes."""
        self.done = False
        response = self.client.send(request, stream=True)
        with closing(response):
            encoded = response.headers.get("Content-Encoding", "identity").lower() != "identity"
            if encoded and response.is_success:
                raise BadAnswer("answered in an encoding that was not asked for")
            yield response
            size = 0
            for part in () if encoded else response.iter_raw():
                size += len(part)
                if size > largest:
                    raise BadAnswer(f"answered with more than {largest:,} bytes")
                yield part
            self.done = not encoded

    def leave(self) -> None:
        """Make the thread in `talk` fail at its next step."""
        self._left = True
        self.client.close()

    def go_on(self, _event: str, _info: Mapping[str, Any]) -> None:
        """Called at every step of a request. Closing the client ends the reads between.

        Raises:
            httpx2.ReadTimeout: nobody waits for the answer any more.
        """
        if self._left:
            raise httpx2.ReadTimeout("timed out")


@cache
def _tls() -> SSLContext:
    """Created once: reading the certificates takes longer than many requests do."""
    return httpx2.create_ssl_context()


def whole(parts: Iterator[httpx2.Response | bytes]) -> httpx2.Response:
    """An exchange as one answer; only the beginning of a refusal."""
    head, content = next(parts), bytearray()
    assert isinstance(head, httpx2.Response)
    for part in parts:
        assert isinstance(part, bytes)
        content += part
        if not head.is_success and len(content) >= REFUSAL:
            break
    headers = [(k, v) for k, v in head.headers.items() if k not in FRAMING]
    phrase = {"reason_phrase": head.extensions.get("reason_phrase", b"")}
    return httpx2.Response(
        head.status_code, headers=headers, content=bytes(content), extensions=phrase
    )


def longest_wait() -> float:
    """The longest wait before another try: never beyond the caller's deadline, if there is one."""
    left = deadline.ends() - time.monotonic()
    return LONGEST_WAIT if left == math.inf else min(left, QUESTION_WAIT)


def wait_to_retry(outcome: Outcome, attempt: int, now: datetime.datetime) -> float | None:
    """Seconds to wait before the next try; None if another try is useless."""
    back_off = min(FIRST_WAIT * 2.0 ** min(attempt, 10), LONGEST_BACK_OFF)
    back_off *= random.uniform(0.5, 1)
    if isinstance(outcome, httpx2.TransportError):
        # These two are raised before the request is sent.
        unsent = isinstance(outcome, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError)
        return None if unsent else back_off
    if outcome.status_code not in RETRIED and not outcome.is_server_error:
        return None
    asked = read_retry_after(outcome.headers.get("Retry-After", ""), now)
    if asked is None:
        return back_off
    return asked if asked <= LONGEST_WAIT else None


def read_retry_after(value: str, now: datetime.datetime) -> float | None:
    """The seconds in a Retry-After header, which is a number or a date; None if it is neither."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or datetime.UTC) - now).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def endpoint(url: str, path: str, what: str) -> httpx2.URL:
    """The address of one method of a service.

    Args:
        what: the setting's name in an error.

    Raises:
        ConfigError: it is not an http address.
    """
    try:
        found = httpx2.URL(f"{url.rstrip('/')}/{path}")
        usable = found.scheme in ("http", "https") and bool(found.host)
    except httpx2.InvalidURL:
        usable = False
    if not usable:
        # The address is not shown: it may hold a key.
        raise ConfigError(
            f"{what} is not an http address",
            hint='write it like this: `url = "http://localhost:8080/v1"`',
        )
    return found


def status_hint(status: int, key_env: str) -> str:
    """What to do about a refusal with this status."""
    return _HINTS.get(status, _OTHER_HINT).format(key_env=key_env)


def shortened(text: str, key: str) -> str:
    """A service's own message in one short line, without the key that some services repeat."""
    line = " ".join(text.split())
    return (line.replace(key, "***") if key else line)[:SHOWN_CHARACTERS]


def read_optional_key(variable: str) -> str:
    """The key that an environment variable holds; '' if there is none.

    Raises:
        SetupError: it holds something that cannot be a key.
    """
    key = os.environ.get(variable, "").strip() if variable else ""
    if not (key.isascii() and key.isprintable()):
        raise SetupError(
            f"the environment variable {variable} holds something that is not a key",
            hint=f"export {variable}=… with the key alone, without quotes or line breaks in it",
        )
    return key


def read_key(variable: str, url: httpx2.URL) -> str:
    """Like `read_optional_key`, but '' only for a service on this machine, or one without keys.

    Raises:
        SetupError: the service is on another machine and the variable is not set or holds no key.
    """
    key = read_optional_key(variable)
    if not key and variable and not _is_local(url.host):
        raise SetupError(
            f"{shown(url)} needs a key, but the environment variable {variable} is not set",
            hint=f'export {variable}=…, or set `key_env = ""` for a service without keys',
        )
    return key


def shown(url: httpx2.URL) -> str:
    """The address without user name and password."""
    return str(url.copy_with(userinfo=b""))


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
