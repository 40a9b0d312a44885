"""Answers that a model can take in: limited in length, without invisible characters. Pure.

A row may hold a book. An answer lists what was cut, and the tool `read` returns it whole, in parts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from lakewake.show.visible import escaped, visible

#: Characters of a whole answer as JSON, and of one hit in it.
MAX_ANSWER, MAX_HIT = 40_000, 8_000
#: Characters of a payload value, of any other text, and of one part that `read` returns.
MAX_VALUE, MAX_TEXT, MAX_PART = 1_000, 4_000, 20_000
#: The message of a recommendation may be longer: it is the answer itself.
_LONGER = {"message": 17_000}
#: Characters kept free for what surrounds the hits, and at least kept of a row's key.
FRAME, SHORTEST = 1_500, 40
NOTE = (
    "What `cut` lists was shortened to fit. `read` returns all of it, part by part; "
    "a smaller `k` shows more of each row."
)


def fit_hits(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer with hits, cut to at most `MAX_ANSWER` characters."""
    others = {name: value for name, value in answer.items() if name not in ("hits", "used")}
    rest = {name: seen(value, _LONGER.get(name, MAX_TEXT)) for name, value in others.items()}
    count = max(len(answer["hits"]), 1)
    room = MAX_ANSWER - FRAME - size(rest)
    names = max(min(room // count, MAX_HIT) // 8, SHORTEST)
    used = [_named(row, names) for row in answer.get("used", ())]
    share = min((room - size(used)) // count, MAX_HIT)
    hits = [_fit_hit(hit, share, names) for hit in answer["hits"]]
    note = {"note": NOTE} if any("cut" in hit for hit in hits) else {}
    return {**rest, **({"used": used} if "used" in answer else {}), "hits": hits, **note}


def seen(value: Any, most: int = MAX_TEXT) -> Any:
    """A value without invisible characters, with each text in it cut to `most` characters."""
    if isinstance(value, str):
        return shortened(visible(value), most)
    if isinstance(value, Mapping):
        return {str(key): seen(inner, most) for key, inner in value.items()}
    return [seen(inner, most) for inner in value] if isinstance(value, list | tuple) else value


def fitting(items: Iterable[Any], room: int = MAX_ANSWER - FRAME) -> tuple[list[Any], int]:
    """The first items that fit, and how many are left out."""
    kept: list[Any] = []
    items = list(items)
    for item in items:
        room -= size(item) + 1
        if room < 0:
            break
        kept.append(item)
    return kept, len(items) - len(kept)


def size(value: Any) -> int:
    """Characters of a value as JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def shortened(text: str, room: int) -> str:
    """The beginning of a text: at most `room` characters as JSON, with "…" if it is cut."""
    if size(text) <= room:
        return text
    kept = text[: max(room - 3, 0)]
    # In JSON, a quote or a line break takes two characters.
    while kept and (over := size(kept) + 1 - room) > 0:
        kept = kept[: len(kept) - max(over // 2, 1)]
    return kept.rstrip() + "…"


def _fit_hit(hit: Mapping[str, Any], share: int, names: int) -> dict[str, Any]:
    plain = None if hit["text"] is None else visible(hit["text"])
    named = _named(hit, names)
    payload, shorter = _fit_payload(hit["payload"], share // 3)
    cut: dict[str, Any] = {n: len(hit[n]) for n in named if named[n] != escaped(hit[n])}
    if shorter:
        cut["payload"] = shorter
    out = {**hit, **named, "field": seen(hit["field"], 200), "payload": payload, "text": ""}
    place = _in_plain(hit["text"], plain, hit["highlight"])
    text, highlight = _window(plain, place, share - size({**out, "cut": cut}) - 40)
    if text != plain:
        cut["text"] = len(plain or "")
    return {**out, "text": text, "highlight": highlight, **({"cut": cut} if cut else {})}


def _named(row: Mapping[str, Any], room: int) -> dict[str, str]:
    """A row's key and partition, in a form that `similar` and `read` take back."""
    return {name: shortened(escaped(row[name]), room) for name in ("key", "partition")}


def _fit_payload(payload: Mapping[str, Any], room: int) -> tuple[dict[str, Any], list[str]]:
    """The payload within `room` characters, and the columns that were cut or left out."""
    kept: dict[str, Any] = {}
    cut: list[str] = []
    for column, value in payload.items():
        short = _fit_value(value)
        spent = size(column) + size(short) + 2
        if spent <= room:
            kept[column] = short
            room -= spent
        if column not in kept or short != seen(value, sys.maxsize):
            cut.append(seen(column, 60))
    return kept, cut[:10] + (["…"] if len(cut) > 10 else [])


def _fit_value(value: Any) -> Any:
    if isinstance(value, str):
        return shortened(visible(value), MAX_VALUE)
    if isinstance(value, list | dict):
        clean = seen(value, MAX_VALUE)
        fits = size(clean) <= MAX_VALUE
        return clean if fits else shortened(json.dumps(clean, ensure_ascii=False), MAX_VALUE)
    return value


def _in_plain(text: str | None, plain: str | None, highlight: list[int] | None) -> list[int] | None:
    """The position of the highlight after invisible characters were removed."""
    if text is None or highlight is None or text == plain:
        return highlight
    return [len(visible(text[:place])) for place in highlight]


def _window(
    text: str | None, highlight: list[int] | None, room: int
) -> tuple[str | None, list[int] | None]:
    """The part of a text around its highlight, and the highlight's position in that part."""
    if text is None or size(text) <= room:
        return text, highlight
    start, end = highlight or (0, 0)
    first = max(min(start - room // 4, len(text) - room), 0)
    before = "…" if first else ""
    part = before + shortened(text[first:], max(room - 4, 1))
    start, end = (min(place - first + len(before), len(part)) for place in (start, end))
    return part, [start, end] if start < end else None
