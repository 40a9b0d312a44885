"""A row's text without invisible characters: a model reads what a person would read. Pure.

Invisible characters can carry instructions past a reader, reverse the order of a line, or control
a terminal. Joiners and variation selectors stay between the letters and signs that need them.
"""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, except line ends and tabs
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0"  # no shape
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"  # joiners, directions, marks
    "\ufe00-\ufe0f\U000e0000-\U000e0fff"  # variation selectors and tags
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U00013430-\U0001343f"  # controls of scripts
    "\ue000-\uf8ff\U000f0000-\U0010ffff\ud800-\udfff"  # private ones and halves
    "]+"
)
_LINE_ENDS = re.compile("\r\n?|[\u0085\u2028\u2029]")
#: What scripts and emoji need, one at a time.
_NEEDED = frozenset({"\u200c", "\u200d", "\ufe0e", "\ufe0f", "\ufe0f\u200d"})
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")


def visible(text: str) -> str:
    """The text without invisible characters, and with one kind of line end."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(_needed, _LINE_ENDS.sub("\n", text))


def _needed(found: re.Match[str]) -> str:
    text, run = found.string, found[0]
    before = text[found.start() - 1 : found.start()] if found.start() else ""
    after = text[found.end() : found.end() + 1]
    joins = run[-1] in "\ufe0e\ufe0f" or not after.isascii()
    return run if run in _NEEDED and joins and _takes(before, run) else ""


def _takes(before: str, run: str) -> bool:
    # A digit with a selector is the beginning of a keycap.
    return not before.isascii() or (run == "\ufe0f" and before in "0123456789#*" and before != "")


def escaped(key: str) -> str:
    """A key with its invisible characters spelled out; `unescaped` gives it back."""
    spelled = _ESCAPED.sub(lambda found: "\\u005c" + found[0][1:], key)
    kept = visible(spelled)
    return spelled if kept == spelled else "".join(map(_spelled, spelled))


def unescaped(key: str) -> str:
    """The inverse of `escaped`."""
    return _ESCAPED.sub(lambda found: _character(found[1] or found[2]), key)


def _spelled(character: str) -> str:
    if character == visible(character) and character not in _NEEDED:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _character(digits: str) -> str:
    code = int(digits, 16)
    return chr(code) if code <= 0x10FFFF else f"\\U{digits}"
