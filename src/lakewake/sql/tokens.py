"""Splits a SQL statement into tokens as Spark does, and never fails: Spark may know better."""

from __future__ import annotations

import re
from typing import NamedTuple

# Possessive quantifiers (`++`, `*+`) rule out backtracking, so the time is linear in the length.
_TOKEN = re.compile(
    r"""
      (?P<space>   \s+ )
    | (?P<comment> --[^\n]*+ )
    | (?P<text>    [rR]'[^']*+' | [rR]"[^"]*+" | '(?:[^'\\]++|\\.)*+' | "(?:[^"\\]++|\\.)*+" )
    | (?P<quoted>  `(?:[^`]++|``)*+` )
    | (?P<open>    ['"`].*+ )
    | (?P<number>  (?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+(?![\w.]) )
    | (?P<word>    \w++ )
    | (?P<symbol>  =>|. )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-3][0-7]{2}|.)", re.DOTALL)


class Token(NamedTuple):
    """A part of a statement, its kind and where it begins."""

    kind: str
    text: str
    at: int

    @property
    def key(self) -> str:
        """A word or symbol as the grammar knows it; '' for names and texts in quotes."""
        return self.text.upper() if self.kind in ("word", "symbol") else ""

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.at + len(self.text)

    @property
    def name(self) -> str | None:
        """The name that it spells, in backticks or not; None if it is not a name."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" else None

    @property
    def value(self) -> str:
        """The characters that a text in quotes stands for."""
        if self.text[0] in "rR":
            return self.text[2:-1]
        return _ESCAPE.sub(_unescaped, self.text[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] == "u" and len(code) == 5:
        return chr(int(code[1:], 16))
    if len(code) == 3:
        return chr(int(code, 8))
    # As in Spark: these two are for LIKE, which unescapes them itself.
    return f"\\{code}" if code in "%_" else _ESCAPES.get(code, code)


def tokens(text: str) -> list[Token]:
    """The tokens of a statement, without white space and comments."""
    found, at = [], 0
    while at < len(text):
        if text.startswith("/*", at):
            at = _after_comment(text, at)
            continue
        match = _TOKEN.match(text, at)
        assert match is not None
        if match.lastgroup not in ("space", "comment"):
            found.append(Token(match.lastgroup or "", match[0], at))
        at = match.end()
    return found


def _after_comment(text: str, at: int) -> int:
    """Where a comment in brackets ends. Such comments nest."""
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    return len(text)
