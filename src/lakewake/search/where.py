"""Parses `--where`, a small grammar, into a value. No text of a user reaches a store."""

from __future__ import annotations

import datetime
import difflib
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple, NoReturn

import pyarrow as pa

from lakewake.errors import FilterError
from lakewake.model.recipe import RESERVED
from lakewake.model.where import (
    And,
    Compare,
    Contains,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Where,
    check_types,
    fields_of,
    has_field,
    leaves,
)

MAX_LENGTH = 10_000
#: How deep parentheses and NOT may nest. The stacks of Python and Lance do not allow much more.
MAX_NESTING = 20
#: How many values a list that is given may have.
MAX_GIVEN = 1000
GIVEN = (
    "compare a claim that tokens have: = :name for one value, IN :name or CONTAINS ANY :name "
    "for a list"
)
#: Columns of Lakewake's own that can be filtered by.
OWN_COLUMNS = ("_key", "_partition", "_field", "_instant")
GRAMMAR = (
    "write conditions: column = 'text' | != <> < <= > >= with 'text', 40, -1.5, true, "
    "DATE '2024-01-31', TIMESTAMP '2024-01-31 12:00:00' (UTC unless it ends in an offset); "
    "IN (…), BETWEEN … AND …, "
    "LIKE 'a%', ILIKE 'a%' for any case, IS NULL, NOT, AND, OR, ( ); for lists CONTAINS 'a', "
    "CONTAINS ANY ('a', 'b'); dates and timestamps may be plain texts; customer.country for a "
    'field of a struct; put a name that is not a plain word in "double quotes" or `backticks`'
)

# Possessive quantifiers (`++`, `*+`) rule out backtracking, so the time is linear in the length.
_TOKEN = re.compile(
    r"""
      (?P<space>   \s+ )
    | (?P<comment> --[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<text>    '(?:[^']++|'')*+' )
    | (?P<name>    "(?:[^"]++|"")*+" | `(?:[^`]++|``)*+` )
    | (?P<unclosed>['"`] )
    | (?P<given>   :(?:[^\W\d]\w*+|"(?:[^"]++|"")*+") )
    | (?P<number>  [+-]?(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]{1,6}+)?+(?![\w.]) )
    | (?P<digits>  \.?[0-9][\w.]*+ )
    | (?P<moment>  (?ai:DATE|TIMESTAMP)\s*+'(?:[^']++|'')*+' )
    | (?P<truth>   (?ai:TRUE|FALSE)(?![\w\u0300-\u1fff]) )
    | (?P<keyword> (?ai:AND|OR|NOT|IN|LIKE|BETWEEN|IS|NULL)(?![\w\u0300-\u1fff]) )
    | (?P<word>    [^\W\d][\w\u0300-\u1fff]*+ )  # the range: marks on letters, which \w lacks
    | (?P<symbol>  [<>=!]=|<>|=[<>]|&&|\|\||. )
    """,
    re.VERBOSE | re.DOTALL,
)
_NAMES, _LITERALS = ("word", "name"), ("text", "number", "moment", "truth", "given")
_MOMENTS = {"DATE": datetime.date, "TIMESTAMP": datetime.datetime}
_OPS = {"=": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_AFTER_COLUMN = (*_OPS, "IS", "NOT", "IN", "LIKE", "BETWEEN")
_WORDS = ("CONTAINS", "ILIKE")
_COMPARISON = "expected a comparison, which begins with a column"
_WRITTEN = {"==": "=", "=<": "<=", "=>": ">=", "≤": "<=", "≥": ">=", "≠": "!=", "&&": "AND"}
#: Kinds of tokens and symbols that no filter has, with what to do about them.
_NEVER = {
    "comment": "a filter has no comments",
    "unclosed": "the quote is not closed; a quote inside quotes is doubled, as in 'it''s'",
    "digits": "this is not a number; put a column of that name in double quotes",
    ";": "a filter is one condition, not several statements",
    "!": "write NOT",
    **{sign: f"write {word}" for sign, word in _WRITTEN.items()},
    **dict.fromkeys("‘’“”„", "put a text in straight single quotes"),
}


def parse_where(text: str, given: Mapping[str, object] | None = None) -> Where:
    """Parse a filter.

    Args:
        given: the values that `:name` stands for in the filter of a token; None: there are
            none. They become literals, whatever they hold.

    Raises:
        FilterError: it does not parse, does more than compare columns with literals, or a given
            value is missing or of no use.
    """
    if len(text) > MAX_LENGTH:
        raise _refusal(f"the filter has {len(text)} characters; the limit is {MAX_LENGTH}")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _refusal("the filter holds bytes that are not text")
    return _Parser(text, given).parse()


def literal_given(value: object, name: str) -> Literal:
    """A value that `:name` stands for, as a literal.

    Raises:
        FilterError: it is none.
    """
    if isinstance(value, str) and len(value) <= MAX_LENGTH and value.isprintable():
        return value
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value.bit_length() <= 64:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(repr(value))
    raise FilterError(f"{name} is not one text, number or boolean", hint=GIVEN)


def check_columns(where: Where, schema: pa.Schema) -> None:
    """Check that the columns of a filter exist and are compared with values of their type.

    Raises:
        FilterError: the hint lists the columns.
    """
    payload = pa.schema([f for f in schema if not f.name.startswith(RESERVED)])
    for leaf in leaves(where):
        if leaf.column not in OWN_COLUMNS and not has_field(leaf, payload):
            _refuse_column(leaf.column, list(fields_of(payload)))
    check_types(where, schema)


def _refuse_column(name: str, payload: list[str]) -> NoReturn:
    near = difflib.get_close_matches(name, payload, n=1)
    folded = [p for p in payload if p.casefold() == name.casefold()]
    guess = f"did you mean {(folded or near)[0]!r}? " if folded or near else ""
    there = f"{', '.join(payload) or 'none'}; also {', '.join(OWN_COLUMNS)}"
    fact = f"the index has no payload column {name!r}"
    raise FilterError(fact, hint=f"{guess}payload columns: {there}")


def _refusal(fact: str) -> FilterError:
    return FilterError(fact, hint=GRAMMAR)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def key(self) -> str:
        return self.text.upper() if self.kind in ("keyword", "symbol") else ""

    def misplaced(self, why: str) -> FilterError:
        place = f"character {self.at + 1}, near {_cut(self.text)!r}" if self.text else "its end"
        return _refusal(f"the filter does not parse at {place}: {why}")

    def not_allowed(self, why: str, shown: str = "") -> FilterError:
        shown = _cut(shown or self.text)
        return _refusal(f"not allowed in a filter: {shown} ({why}), at character {self.at + 1}")


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:59]}…"


def _tokens(text: str) -> list[_Token]:
    found = [_Token(m.lastgroup or "", m[0], m.start()) for m in _TOKEN.finditer(text)]
    found = [token for token in found if token.kind != "space"]
    if all(token.kind == "comment" for token in found):
        raise _refusal("the filter is empty")
    for token in found:
        if why := _NEVER.get(token.kind) or _NEVER.get(token.key):
            raise token.misplaced(why)
    return [*found, *[_Token("end", "", len(text))] * 3]  # the parser looks two ahead


def _unquoted(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0]) if text[0] in "'\"`" else text


def _value(token: _Token) -> Literal:
    text = token.text
    if token.kind == "text":
        return _unquoted(text)
    if token.kind == "truth":
        return text.upper() == "TRUE"
    if token.kind == "moment":
        return _moment(token)
    return int(text) if text.lstrip("+-").isdecimal() and len(text) < 40 else Decimal(text)


def _moment(token: _Token) -> datetime.date | datetime.datetime:
    word, _, text = token.text[:-1].partition("'")
    kind = word.strip().upper()
    try:
        return _MOMENTS[kind].fromisoformat(text)
    except ValueError as error:
        raise token.misplaced(f"this is not a valid {kind}") from error


class _Parser:
    """Recursive descent, a method per rule. OR binds weakest, then AND, then NOT."""

    def __init__(self, text: str, given: Mapping[str, object] | None = None) -> None:
        self._text, self._given = text, given
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def parse(self) -> Where:
        where = self._any()
        if self._peek().key == ")":
            raise self._peek().misplaced("no parenthesis is open")
        if self._peek().kind != "end":
            raise self._unexpected("expected AND or OR")
        return where

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[self._at + ahead]

    def _step(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _is_word(self, words: tuple[str, ...], ahead: int = 0) -> bool:
        """Whether a word comes next that is also a name of columns, so not a keyword."""
        token = self._peek(ahead)
        return token.kind == "word" and token.text.upper() in words

    def _names_ahead(self) -> int:
        """How many names with dots between them come next."""
        names = 0
        while self._peek(2 * names).kind in _NAMES:
            names += 1
            if self._peek(2 * names - 1).key != ".":
                break
        return names

    def _take(self, key: str) -> bool:
        return self._peek().key == key and bool(self._step())

    def _expect(self, key: str, choice: str = "") -> None:
        if not self._take(key):
            raise self._unexpected(f"expected {choice or key}")

    def _any(self) -> Where:
        joined = [[self._one()]]
        while self._peek().key in ("AND", "OR"):
            if self._step().key == "OR":
                joined.append([])
            joined[-1].append(self._one())
        parts = [And(tuple(ones)) if len(ones) > 1 else ones[0] for ones in joined]
        return Or(tuple(parts)) if len(parts) > 1 else parts[0]

    def _one(self) -> Where:
        if self._peek().key not in ("NOT", "("):
            return self._condition()
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise _refusal(f"the filter nests more than {MAX_NESTING} deep")
        negated = self._step().key == "NOT"
        where = self._one() if negated else self._any()
        if not negated:
            self._expect(")", "AND, OR or )")
        self._depth -= 1
        return Not(where) if negated else where

    def _condition(self) -> Where:
        names = self._names_ahead()
        after = 2 * names - 1
        compares = self._peek(after).key in _AFTER_COLUMN or self._is_word(_WORDS, after)
        if not names or not compares:
            raise self._no_comparison()
        column = ".".join(_unquoted(self._peek(2 * n).text) for n in range(names))
        self._at += after
        if self._peek().key in _OPS:
            return Compare(column, _OPS[self._step().key], self._literal())
        if self._take("IS"):
            negated = self._take("NOT")
            self._expect("NULL", "IS NULL or IS NOT NULL")
            return Not(IsNull(column)) if negated else IsNull(column)
        return Not(self._test(column)) if self._take("NOT") else self._test(column)

    def _test(self, column: str) -> Where:
        if self._take("IN"):
            return In(column, self._list())
        if self._is_word(("CONTAINS",)):
            self._step()
            several = self._is_word(("ANY",)) and bool(self._step())
            return Contains(column, self._list() if several else (self._literal(),))
        any_case = self._is_word(("ILIKE",))
        if any_case or self._peek().key == "LIKE":
            self._step()
            if self._peek().kind == "given":
                raise self._peek().misplaced(
                    "LIKE and ILIKE take none of these: % in it would be a wildcard"
                )
            pattern = self._literal()
            if not isinstance(pattern, str):
                raise self._peek(-1).misplaced("LIKE takes a text")
            return Like(column, pattern, any_case)
        self._expect("BETWEEN", "IN, LIKE, ILIKE, CONTAINS or BETWEEN")
        low = self._literal()
        self._expect("AND")
        return And((Compare(column, ">=", low), Compare(column, "<=", self._literal())))

    def _list(self) -> tuple[Literal, ...]:
        if self._peek().kind == "given":
            value, name = self._value_given()
            several = value if isinstance(value, list | tuple) else [value]
            if len(several) > MAX_GIVEN:
                raise FilterError(f"{name} has {len(several)} values", hint=GIVEN)
            return tuple(literal_given(one, name) for one in several)
        self._expect("(")
        if self._peek().key == ")":
            raise self._peek().misplaced("this is an empty list")
        values = [self._literal()]
        while self._take(","):
            values.append(self._literal())
        self._expect(")", "a comma or )")
        return tuple(values)

    def _literal(self) -> Literal:
        token, after = self._peek(), self._peek(1)
        if token.kind == "given":
            return literal_given(*self._value_given())
        if token.kind in _LITERALS:
            return _value(self._step())
        if token.kind in _NAMES and (after.kind in ("end", "keyword") or after.key in (")", ",")):
            text = _cut("'" + _unquoted(token.text).replace("'", "''") + "'")
            raise token.not_allowed(f"a column, not a literal; did you mean {text}?")
        raise self._unexpected("expected a literal")

    def _value_given(self) -> tuple[object, str]:
        """The value that `:name` stands for, and how it is called."""
        token = self._step()
        name = _unquoted(token.text[1:])
        if self._given is None:
            raise token.not_allowed("only the filter of a token has such values")
        if name not in self._given:
            raise FilterError(f"there is no {token.text}", hint=GIVEN)
        return self._given[name], token.text

    def _no_comparison(self) -> FilterError:
        token, after = self._peek(), self._peek(1)
        if token.kind in _LITERALS:
            return token.misplaced("a comparison begins with a column: put the column first")
        if token.kind not in _NAMES or after.key == "(":
            return self._unexpected(_COMPARISON)
        if token.text.upper() in ("SELECT", "WHERE"):
            return token.misplaced("a filter is only what comes after WHERE")
        if after.key == ".":
            return token.misplaced("expected names with dots between them, and then a comparison")
        if after.kind in ("end", "keyword") or after.key == ")":
            return token.not_allowed("a column, not a comparison; did you mean = true?")
        self._step()
        return self._unexpected(f"{_COMPARISON} alone")

    def _unexpected(self, rule: str) -> FilterError:
        token, word, after = self._peek(), self._peek().text.upper(), self._peek(1)
        if token.kind in _NAMES and after.key == "(":
            what = "a cast" if word.endswith("CAST") else "a function call"
            return token.not_allowed(f"{what}; {rule}", self._text[token.at :])
        if word == "SELECT" or after.text.upper() == "SELECT":
            return token.not_allowed(f"a subquery; {rule}")
        if token.key == "NULL":
            return token.not_allowed("NULL; use IS NULL")
        if token.kind in ("word", "truth"):
            return token.not_allowed(rule)
        if token.kind == "symbol" and token.text not in (*_OPS, *"(),"):
            return token.not_allowed(f"an operation; {rule}")
        return token.misplaced(rule)
