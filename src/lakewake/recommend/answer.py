"""What a chat service sent → the parts of its message. Pure; no byte of it is trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_LINE_END = re.compile(rb"\r\n|\n|\r")
_DONE = "[DONE]"


class UnusableAnswer(ValueError):
    """What is wrong with an answer, as the end of a sentence about the service."""


@dataclass(frozen=True)
class Delta:
    """A part of the message; if it is the last, also why it ends (`stop`, `length`, …)."""

    text: str
    finish: str | None = None


def read_whole(body: bytes) -> Delta:
    """The message of an answer that was not streamed.

    Raises:
        UnusableAnswer: there is none in it.
    """
    choice = _choice(_parse(body))
    if choice is None:
        raise UnusableAnswer("answered without a choice")
    return Delta(_text(choice.get("message")), _finish(choice) or "stop")


def read_stream(chunks: Iterable[bytes]) -> Iterator[Delta]:
    """The parts of an answer that comes as server-sent events, until it says that it ends.

    Raises:
        UnusableAnswer: an event cannot be read or reports an error, or the stream breaks off.
    """
    for data in read_events(chunks):
        if data.strip() == _DONE:
            yield Delta("", "stop")
            return
        choice = _choice(_parse(data.encode()))
        if choice is None:  # figures about the request come in events of their own
            continue
        part = Delta(_text(choice.get("delta")), _finish(choice))
        yield part
        if part.finish:
            return
    raise UnusableAnswer("broke off in the middle of its answer")


def read_events(chunks: Iterable[bytes]) -> Iterator[str]:
    """The data of each server-sent event."""
    data: list[str] = []
    for line in _lines(chunks):
        if not line and data:
            yield "\n".join(data)
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
    # An event without its blank line does not count: the connection broke.


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = bytearray()
    for chunk in chunks:
        ends = rest.endswith(b"\r") or b"\n" in chunk or b"\r" in chunk
        rest += chunk
        if not ends:
            continue
        # A \r at the very end may be half of a \r\n.
        whole = len(rest) - rest.endswith(b"\r")
        *lines, last = _LINE_END.split(bytes(rest[:whole]))
        rest[:whole] = last
        yield from map(_decode, lines)


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise UnusableAnswer("sent an event that is not UTF-8") from None


def _parse(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise UnusableAnswer("answered something that is not JSON") from None
    if not isinstance(value, dict):
        raise UnusableAnswer("answered JSON that is not an object")
    if value.get("error"):
        error = value["error"]
        message = error.get("message") if isinstance(error, dict) else error
        raise UnusableAnswer(f"reported an error: {_writable(str(message))}")
    return value


def _choice(value: dict[str, Any]) -> dict[str, Any] | None:
    choices = value.get("choices")
    if not choices:
        return None
    if not isinstance(choices, list) or not isinstance(choices[0], dict):
        raise UnusableAnswer("answered choices in an unknown form")
    return choices[0]


def _text(message: object) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if content is None:
        return ""
    if not isinstance(content, str):
        raise UnusableAnswer("answered a message that is not text")
    return _writable(content)


def _writable(text: str) -> str:
    """Replace halves of surrogate pairs: JSON can spell them, but no file can hold them."""
    return text.encode("utf-8", "replace").decode()


def _finish(choice: dict[str, Any]) -> str | None:
    finish = choice.get("finish_reason")
    return finish if isinstance(finish, str) and finish else None
