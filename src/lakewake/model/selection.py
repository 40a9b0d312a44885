"""The selection of an index: a condition in Spark SQL that decides which rows it holds.

It is read here without Spark, so far as is needed before any row is: which columns it names,
whether it depends on the date, and that nothing else than the row decides about it. Only functions
that are known to give the same result for the same row are allowed. Spark checks the rest.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

#: How the current date is written; with or without parentheses.
TODAY = ("CURRENT_DATE", "CURDATE")
_FUNCTIONS = """
    abs add_months array_contains bigint boolean cardinality cast ceil ceiling char_length
    character_length coalesce concat concat_ws contains crc32 date date_add date_diff date_format
    date_sub date_trunc datediff day dayofmonth dayofweek dayofyear decimal double element_at
    endswith float floor get_json_object greatest hash hour if ifnull instr int isnan isnotnull
    isnull last_day lcase least left length locate lower lpad ltrim make_date map_contains_key md5
    minute mod month months_between next_day nullif nvl nvl2 pmod power quarter regexp_extract
    regexp_like regexp_replace replace right rlike round rpad rtrim second sha1 sha2 sign size
    smallint split sqrt startswith string substr substring substring_index timestamp
    timestamp_micros timestamp_millis timestamp_seconds tinyint to_date to_timestamp translate trim
    trunc try_cast ucase unix_date upper weekday weekofyear xxhash64 year
"""
#: Functions of Spark whose results depend on nothing but their arguments.
FUNCTIONS = frozenset(_FUNCTIONS.split())
#: Words of the language that are not columns. A column with such a name is written in backquotes.
KEYWORDS = frozenset(
    (
        *("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "ESCAPE"),
        *("IS", "NULL", "TRUE", "FALSE", "DISTINCT", "FROM", "DIV", "AS"),
        *("CASE", "WHEN", "THEN", "ELSE", "END"),
    )
)
#: Words that begin what is never allowed.
REFUSED = {
    **dict.fromkeys(("SELECT", "EXISTS", "WITH", "JOIN", "UNION"), "a subquery"),
    **dict.fromkeys(("OVER", "PARTITION", "WINDOW", "FILTER"), "a window or an aggregate"),
    **dict.fromkeys(
        ("NOW", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "UNIX_TIMESTAMP", "CURRENT_TIME"),
        "the current time",
    ),
}
#: Texts that Spark takes for the time of the query if it expects a date.
_MOMENTS = re.compile(r"\s*(epoch|now|today|tomorrow|yesterday)(\s+\S+)?\s*", re.IGNORECASE)
_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--|/\*)
  | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | (?P<quoted>`(?:[^`]|``)+`)
  | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:E[+-]?\d+)?(?:BD|[LSYDF])?(?!\w))
  | (?P<name>[A-Z_]\w*)
  | (?P<open>\() | (?P<close>\))
  | (?P<sign><=>|<>|!=|<=|>=|==|\|\||[=<>+\-*/%,.\[\]!&|^~])
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE | re.ASCII,
)
#: What may stand before a text in quotes, and makes a literal of it.
_LITERALS = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "X")
_UNIT = re.compile(r"(YEAR|QUARTER|MONTH|WEEK|DAY|HOUR|MINUTE|SECOND)S?|TO")


class SelectionError(ValueError):
    """A condition that cannot select rows; `hint` is the remedy."""

    def __init__(self, fact: str, hint: str) -> None:
        super().__init__(fact)
        self.hint = hint


@dataclass(frozen=True)
class Selection:
    """A condition on a row, as one or several that must all hold.

    Attributes:
        conditions: the text of each, cut where it names the current date.
        columns: the columns of the table that it names, each once.
    """

    conditions: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...]

    @property
    def text(self) -> str:
        """The condition; runs of white space outside quotes are one space."""
        return _all_of(self.conditions, "current_date()")

    @property
    def dated(self) -> bool:
        """Whether rows enter and leave as days go by."""
        return any(len(parts) > 1 for parts in self.conditions)

    def on(self, date: str) -> str:
        """The condition on a day such as `2026-11-19`; it depends on the row alone."""
        if self.dated and not date:
            raise ValueError("a selection that depends on the date needs one")
        return _all_of(self.conditions, _literal(date))

    def moved(self, before: str, after: str) -> str:
        """The condition on rows that are selected on one of two days and not on the other.

        What does not depend on the day stays a condition of its own, and so does what does: if that
        names only columns that partition the table, other partitions are not read.
        """
        dated = [parts for parts in self.conditions if len(parts) > 1]
        fixed = [f"({parts[0]})" for parts in self.conditions if len(parts) == 1]
        was, now = (f"({_all_of(dated, _literal(day))}) <=> TRUE" for day in (before, after))
        return " AND ".join([*fixed, f"({was}) <> ({now})"])


def _all_of(conditions: Sequence[Sequence[str]], date: str) -> str:
    return " AND ".join(date.join(parts) for parts in conditions)


def _literal(date: str) -> str:
    return f"DATE'{date}'"


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    spaced: bool = False

    @property
    def word(self) -> str:
        """A name in capitals; '' for anything else."""
        return self.text.upper() if self.kind == "name" else ""


_NONE = _Token("", "")


@cache
def parse_selection(text: str) -> Selection:
    """Read a condition.

    Raises:
        SelectionError: it is empty, or something besides the row and the date decides about it.
    """
    tokens = tuple(_tokens(text))
    if not tokens:
        raise SelectionError("it is empty", "write a condition, or remove the line")
    _check_parentheses(tokens)
    conditions, columns = [[""]], dict[str, None]()
    apart, ends, left_out = _no_columns(tokens), _conjunctions(tokens), frozenset[int]()
    around = (_NONE, *tokens, _NONE, _NONE)
    for n, token in enumerate(tokens):
        before, after, then = around[n], around[n + 2], around[n + 3]
        parts = conditions[-1]
        if n in left_out:
            continue
        if n in ends:
            conditions.append([""])
            continue
        parts[-1] += " " * (token.spaced and parts != [""])
        if token.word in TODAY and before.text != ".":
            if after.kind == "open":
                _check_no_argument(token, then)
                left_out = frozenset({n + 1, n + 2})
            parts.append("")
            continue
        parts[-1] += token.text
        if token.kind == "string":
            _check_string(token, before)
        elif token.kind in ("name", "quoted") and n not in apart:
            columns |= dict.fromkeys(_column(token, before, after))
    return Selection(tuple(map(tuple, conditions)), tuple(columns))


def _conjunctions(tokens: Sequence[_Token]) -> frozenset[int]:
    """The positions of each AND between conditions that all must hold; none if there is an OR."""
    found: set[int] = set()
    depth = betweens = 0
    for n, token in enumerate(tokens):
        depth += (token.kind == "open") + (token.word == "CASE")
        depth -= (token.kind == "close") + (token.word == "END")
        if depth:
            continue
        if token.word == "OR":
            return frozenset()
        betweens += token.word == "BETWEEN"
        if token.word == "AND" and betweens:
            betweens -= 1
        elif token.word == "AND":
            found.add(n)
    return frozenset(found)


def _tokens(text: str) -> Iterator[_Token]:
    at, spaced = 0, False
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise SelectionError(
                f"{text[at : at + 10]!r} is not understood",
                "close every quote, and write a column in backquotes if its name holds anything "
                "but letters, digits and _",
            )
        at, kind = found.end(), found.lastgroup or ""
        if kind == "comment":
            raise SelectionError("it holds a comment", "write it as # beside the line of the file")
        if kind != "space":
            yield _Token(kind, found[0], spaced)
        spaced = kind == "space"


def _check_parentheses(tokens: Sequence[_Token]) -> None:
    depth = 0
    for token in tokens:
        depth += (token.kind == "open") - (token.kind == "close")
        if depth < 0:
            break
    if depth:
        raise SelectionError("its parentheses do not match", "close each one that is opened")


def _no_columns(tokens: Sequence[_Token]) -> frozenset[int]:
    """The positions of names that are part of a literal, an interval or a cast."""
    found: set[int] = set()
    for n, (token, after) in enumerate(zip(tokens, (*tokens[1:], _NONE), strict=True)):
        if token.word in _LITERALS and after.kind == "string":
            found.add(n)
        elif token.word == "AS":
            found.add(n + 1)
        elif token.word == "INTERVAL" and (after.kind in ("number", "string") or after.text == "-"):
            found.add(n)
            for at in range(n + 1, len(tokens)):
                unit = _UNIT.fullmatch(tokens[at].word)
                if not unit and tokens[at].kind not in ("number", "string") and at > n + 1:
                    break
                found.add(at)
    return frozenset(found)


def _check_no_argument(token: _Token, then: _Token) -> None:
    if then.kind != "close":
        raise SelectionError(
            f"{token.text} takes no argument", "write current_date(), which is the date in UTC"
        )


def _check_string(token: _Token, before: _Token) -> None:
    text = token.text[1:-1]
    if _MOMENTS.fullmatch(text):
        raise SelectionError(
            f"{token.text} may mean the time at which it is read",
            "use current_date(); or, to compare with this text, write "
            f"concat('{text[:1]}', '{text[1:]}')",
        )
    if before.kind == "string":
        raise SelectionError(
            f"{before.text}{token.text} are two texts to Spark",
            "write a quote within a text as \\' in Spark SQL",
        )
    if before.kind == "name" and not token.spaced and before.word not in _LITERALS:
        raise SelectionError(
            f"{before.text}{token.text} is not understood", "write the text in plain quotes"
        )


def _column(token: _Token, before: _Token, after: _Token) -> tuple[str, ...]:
    """The column that a name means: one, or none if it is a word of the language or a function."""
    if token.kind == "quoted":
        if after.kind == "open":
            raise _refused_function(token.text)
        return () if before.text == "." else (token.text[1:-1].replace("``", "`"),)
    if why := REFUSED.get(token.word):
        raise SelectionError(
            f"{token.text} stands for {why}",
            "compare columns of the row with literals and current_date(); write a column of that "
            "name in backquotes",
        )
    if token.word in KEYWORDS:
        return ()
    if after.kind != "open":
        return () if before.text == "." else (token.text,)
    if before.text == "." or token.text.lower() not in FUNCTIONS:
        raise _refused_function(token.text)
    return ()


def _refused_function(name: str) -> SelectionError:
    near = difflib.get_close_matches(name.lower(), sorted(FUNCTIONS), 1)
    return SelectionError(
        f"function {name} is not allowed",
        (f"did you mean {near[0]}? " if near else "")
        + "use functions of the row's columns alone; docs/config.md lists them",
    )
