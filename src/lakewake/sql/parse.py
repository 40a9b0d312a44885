"""Parses the statements that manage indexes, and finds the calls of our functions in others. Pure.

    CREATE VECTOR INDEX [IF NOT EXISTS] name ON table (column, …)
        [USING lance|hudi|qdrant] [OPTIONS ('key' = 'value', …)]
    REFRESH VECTOR INDEX name
    DROP VECTOR INDEX [IF EXISTS] name
    SHOW VECTOR INDEXES [IN 'folder']
    DESCRIBE VECTOR INDEX name

A name is a word, a name in backticks, or the address of an index in quotes.
"""

from __future__ import annotations

from collections.abc import Callable

from lakewake.errors import SqlError
from lakewake.sql.calls import find_calls
from lakewake.sql.statements import (
    CreateIndex,
    DescribeIndex,
    DropIndex,
    Name,
    Option,
    Other,
    RefreshIndex,
    ShowIndexes,
    Statement,
    Value,
)
from lakewake.sql.tokens import Token, tokens
from lakewake.sql.values import read_value

_CREATE = (
    "CREATE VECTOR INDEX name ON table (column) USING lance OPTIONS ('vector.metric' = 'cosine')"
)


def parse(text: str) -> Statement:
    """What a statement says. A statement that is not ours is never refused.

    Raises:
        SqlError: it begins like one of ours, and does not go on like it.
    """
    found = tokens(text)
    opening = tuple(token.key for token in found[:3])
    for words, rule in _RULES.items():
        if opening == words:
            return rule(_Parser(text, found))
    explain = bool(found) and found[0].key == "EXPLAIN"
    return Other(text, find_calls(text, found), explain)


class _Parser:
    """Recursive descent, a method per rule, after the three words that begin a statement."""

    def __init__(self, text: str, found: list[Token]) -> None:
        self._text = text
        while found and found[-1].key == ";":
            found = found[:-1]
        self._tokens = [*found, Token("end", "", len(text))]
        self._at = 3

    def create(self) -> Statement:
        unless = self._take("IF")
        if unless:
            self._expect("NOT", _CREATE)
            self._expect("EXISTS", _CREATE)
        name = self._index_name(_CREATE)
        self._expect("ON", _CREATE)
        table = self._table()
        columns = self._columns()
        store = self._store() if self._take("USING") else None
        options = self._options() if self._take("OPTIONS") else ()
        return self._ended(CreateIndex(name, table, columns, store, options, unless), _CREATE)

    def refresh(self) -> Statement:
        form = "REFRESH VECTOR INDEX name"
        return self._ended(RefreshIndex(self._index_name(form)), form)

    def drop(self) -> Statement:
        form = "DROP VECTOR INDEX IF EXISTS name"
        if unless := self._take("IF"):
            self._expect("EXISTS", form)
        return self._ended(DropIndex(self._index_name(form), unless), form)

    def show(self) -> Statement:
        form = "SHOW VECTOR INDEXES, or SHOW VECTOR INDEXES IN 'folder'"
        folder = None
        if self._take("IN") or self._take("FROM"):
            if self._peek().kind != "text":
                raise self._unexpected("a folder in quotes", form)
            folder = self._name()
        return self._ended(ShowIndexes(folder), form)

    def describe(self) -> Statement:
        form = "DESCRIBE VECTOR INDEX name"
        # `DESCRIBE vector index` is Spark's: column `index` of table `vector`.
        if self._peek().kind == "end":
            return Other(self._text)
        return self._ended(DescribeIndex(self._index_name(form)), form)

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _step(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, key: str) -> bool:
        return self._peek().key == key and bool(self._step())

    def _expect(self, key: str, form: str) -> None:
        if not self._take(key):
            raise self._unexpected(key, form)

    def _unexpected(self, wanted: str, form: str) -> SqlError:
        token = self._peek()
        found = "the end of the statement" if token.kind == "end" else _shown(token)
        if token.kind == "open":
            found = "a quote that is not closed"
        return SqlError(
            f"expected {wanted}, found {found}", self._text, token.at, hint=f"write it as {form}"
        )

    def _ended(self, statement: Statement, form: str) -> Statement:
        if self._peek().kind != "end":
            raise self._unexpected("the end of the statement", form)
        return statement

    def _name(self) -> Name:
        token = self._step()
        if token.kind == "text":
            return Name(self._text, token.at, (token.value,), literal=True)
        return Name(self._text, token.at, (token.name or "",))

    def _index_name(self, form: str) -> Name:
        if self._peek().kind not in ("word", "quoted", "text"):
            raise self._unexpected("the name of an index", form)
        return self._name()

    def _table(self) -> Name:
        if self._peek().kind not in ("word", "quoted", "text"):
            raise self._unexpected("a table, or its path in quotes", _CREATE)
        name = self._name()
        parts = list(name.names)
        while not name.literal and self._take("."):
            if self._peek().name is None:
                raise self._unexpected("the rest of the table's name", _CREATE)
            parts.append(self._step().name or "")
        return Name(name.text, name.at, tuple(parts), name.literal)

    def _columns(self) -> tuple[Name, ...]:
        self._expect("(", _CREATE)
        columns = [self._column()]
        while self._take(","):
            columns.append(self._column())
        self._expect(")", _CREATE)
        return tuple(columns)

    def _column(self) -> Name:
        if self._peek().name is None:
            raise self._unexpected("a column", _CREATE)
        return self._name()

    def _store(self) -> Name:
        if self._peek().name is None:
            raise self._unexpected("lance, hudi or qdrant", _CREATE)
        return self._name()

    def _options(self) -> tuple[Option, ...]:
        self._expect("(", _CREATE)
        options: list[Option] = []
        while not self._take(")"):
            if options:
                self._expect(",", _CREATE)
            options.append(self._option())
        return tuple(options)

    def _option(self) -> Option:
        first = self._peek()
        if first.kind not in ("word", "quoted", "text"):
            raise self._unexpected("an option", _CREATE)
        key = str(self._table())
        self._expect("=", _CREATE)
        return Option(self._text, first.at, key, self._value())

    def _value(self) -> Value:
        value, after = read_value(self._tokens, self._at)
        if after is None:
            raise self._unexpected("a text in quotes, a number, true or false", _CREATE)
        self._at = after
        return value


def _shown(token: Token) -> str:
    return repr(token.text if len(token.text) <= 40 else f"{token.text[:39]}…")


_RULES: dict[tuple[str, ...], Callable[[_Parser], Statement]] = {
    ("CREATE", "VECTOR", "INDEX"): _Parser.create,
    ("REFRESH", "VECTOR", "INDEX"): _Parser.refresh,
    ("DROP", "VECTOR", "INDEX"): _Parser.drop,
    ("SHOW", "VECTOR", "INDEXES"): _Parser.show,
    ("DESCRIBE", "VECTOR", "INDEX"): _Parser.describe,
    ("DESC", "VECTOR", "INDEX"): _Parser.describe,
}
