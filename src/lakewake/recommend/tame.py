"""A row's text, made safe for a prompt or an answer. Pure.

Anyone may write rows. Their text must not end its own section of the prompt, nor pass for a
citation. Text that speaks to a model rather than to a reader stays, but is noticed.
"""

from __future__ import annotations

import re

from lakewake.show.visible import visible

_JOINERS = re.compile("[\u200c\u200d\ufe0e\ufe0f]")
# Possessive where blanks may follow blanks: thousands of them must not stall a server.
_BRACKETED = re.compile(r"\[(\s*+(?:(?:row|#)\s*+)?[0-9][0-9\s,;–-]*+)\]", re.IGNORECASE)
_TO_A_MODEL = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,60}"
    r"\b(?:instructions?|prompts?|rules|guidelines|previous|prior|above)\b"
    r"|\b(?:system|developer)\s+(?:prompt|message|instructions?)\b"
    r"|\byou\s+are\s+(?:now\b|an?\s+(?:ai|assistant|language\s+model|chat\s*bot)\b)"
    r"|\b(?:new|updated|real)\s+instructions?\s*:"
    r"|^[^\S\n]*+(?:system|assistant|developer)\s*:"
    r"|<\|[a-z_]+\|>|\[/?INST\]|<<\s*+(?:/\s*+)?(?:row|end|sys)\b",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)


def tame(text: str) -> str:
    """The text without invisible characters, our markers, and numbers in square brackets."""
    split = re.sub(r"<(?=<)|>(?=>)", lambda mark: f"{mark[0]} ", visible(text))
    return _BRACKETED.sub(r"(\1)", split)


def speaks_to_a_model(text: str) -> bool:
    """Whether it reads like an instruction to a language model. A guess, good for a warning."""
    return _TO_A_MODEL.search(_JOINERS.sub("", visible(text))) is not None


def cut(text: str, length: int) -> str:
    """At most `length` characters, with a mark where something was cut."""
    return text if len(text) <= length else text[: max(length - 1, 0)].rstrip() + "…"[:length]
