"""Searching as of an earlier instant: which version of an index answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from lakewake.errors import ConfigError
from lakewake.model.frontier import Frontier
from lakewake.show.plain import moment

T = TypeVar("T")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?)?")


def parse_instant(given: str) -> str:
    """An instant as Hudi names it, from that or from a date.

    Raises:
        ConfigError: it is neither.
    """
    text = given.strip()
    if date := _DATE.fullmatch(text):
        *parts, fraction = date.groups()
        return "".join(part or "00" for part in parts) + (fraction or "").ljust(3, "0")
    if not re.fullmatch(r"\d{8,20}", text):
        raise ConfigError(
            f"{given[:40]!r} is not an instant of a table",
            hint="write it as an answer names it, 20250301120000123, or as 2025-03-01 12:00:00",
        )
    return text


def newest_not_newer(instant: str, versions: Iterable[tuple[Frontier, T]], index: str) -> T:
    """The newest version that holds no table commit after `instant`.

    A version whose newest commit is `instant` itself always counts: its answers name that instant.

    Args:
        versions: what each kept version has absorbed, newest first. They are read one by one.

    Raises:
        ConfigError: all of them are newer.
    """
    first = last = ""
    for frontier, version in versions:
        newest = frontier.newest
        if newest == instant or max(frontier.instants, default="") <= instant:
            return version
        first, last = newest, last or newest
    raise ConfigError(
        f"index '{index}' is not kept as of {moment(instant)}; it is kept as of instants from "
        f"{first} to {last}",
        hint=f"search as of {first} or later; `keep` decides how long an index in the lake keeps "
        "what it held",
    )
