"""Texts that no model can read, and what is put before those that it can."""

from __future__ import annotations

from collections.abc import Sequence

from lakewake.errors import TextRefused


def refuse_undecodable(texts: Sequence[str]) -> None:
    """Check that every text is Unicode.

    Raises:
        TextRefused: some hold half a surrogate pair, which Python makes of undecodable bytes.
    """
    reasons = {n: "not valid Unicode" for n, text in enumerate(texts) if not _is_unicode(text)}
    if reasons:
        raise TextRefused(f"{len(reasons)} of {len(texts)} texts are not valid Unicode", reasons)


def prefixed(pooling: str, prefix: str) -> str:
    """How an identity records what is put before each text; '' and '' is as it always was."""
    return ", ".join(part for part in (pooling, prefix and f"{prefix!r} before each text") if part)


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
