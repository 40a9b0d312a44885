"""Finds the calls of our table functions in a statement, and binds their arguments. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lakewake.sql.statements import Argument, Call, Value
from lakewake.sql.tokens import Token
from lakewake.sql.values import read_value

#: Function → its parameters, in order.
FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "vector_search": ("index", "question", "k", "where", "mode", "exact", "column"),
    "vector_range": ("index", "question", "distance", "where"),
}
#: What a parameter is if it is not given.
DEFAULTS: Mapping[str, Value] = {
    "k": 10,
    "where": None,
    "mode": "vector",
    "exact": False,
    "column": None,
}
_CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "WINDOW", "SET", "VALUES")
_OPEN, _CLOSED = "([{", ")]}"


def find_calls(text: str, tokens: Sequence[Token]) -> tuple[Call, ...]:
    """The calls of our functions where a query names its tables, in order.

    Calls inside the arguments of another one are part of it.
    """
    found: list[Call] = []
    for n in _named_as_tables(tokens):
        call = _call(text, tokens, n)
        if call is not None and (not found or call.at >= found[-1].end):
            found.append(call)
    return tuple(found)


def _named_as_tables(tokens: Sequence[Token]) -> Iterator[int]:
    """The tokens that name one of our functions in FROM."""
    clauses = [""]
    for n, token in enumerate(tokens):
        if token.kind == "symbol" and token.text in _OPEN:
            clauses.append("")
        elif token.kind == "symbol" and token.text in _CLOSED and len(clauses) > 1:
            clauses.pop()
        elif token.key in _CLAUSES:
            clauses[-1] = token.key
        elif (token.name or "").lower() in FUNCTIONS and n:
            before = tokens[n - 1].key
            in_from = before == "," and clauses[-1] == "FROM"
            if before in ("FROM", "JOIN", "LATERAL") or in_from:
                yield n


def _call(text: str, tokens: Sequence[Token], n: int) -> Call | None:
    if n + 1 == len(tokens) or tokens[n + 1].key != "(":
        return None
    given: list[Argument] = []
    depth, first = 0, n + 2
    for at in range(n + 1, len(tokens)):
        token = tokens[at]
        depth += (token.text in _OPEN) - (token.text in _CLOSED) if token.kind == "symbol" else 0
        if (depth == 1 and token.key == ",") or not depth:
            if at > first or given:
                given.append(_argument(text, tokens[first:at], token.at))
            first = at + 1
        if not depth:
            name = (tokens[n].name or "").lower()
            lateral = tokens[n - 1].key == "LATERAL"
            return Call(text, name, tokens[n].at, token.end, tuple(given), lateral)
    return None


def _argument(text: str, tokens: Sequence[Token], end: int) -> Argument:
    at = tokens[0].at if tokens else end
    name = None
    if len(tokens) > 2 and tokens[1].key == "=>":
        name, tokens = tokens[0].name, tokens[2:]
    words = text[tokens[0].at : tokens[-1].end] if tokens else ""
    value, after = read_value(tokens, 0) if tokens else (None, None)
    spelled = (value,) if after == len(tokens) else ()
    return Argument(text, at, words, name, spelled, _table(text, tokens))


def _table(text: str, tokens: Sequence[Token]) -> str | None:
    if len(tokens) < 3 or tokens[0].key != "TABLE" or tokens[1].key != "(":
        return None
    inner = text[tokens[1].end : tokens[-1].at].strip()
    return inner if tokens[2].key in ("SELECT", "WITH", "VALUES") else f"SELECT * FROM {inner}"


def bind(call: Call) -> Call:
    """The call with its arguments by parameter.

    Raises:
        SqlError: there are too many or too few, or a name is not one of the parameters.
    """
    parameters, bound = FUNCTIONS[call.function], dict[str, Argument]()
    form = f"write it as {call.function}({', '.join(parameters[:3])}), then " + ", ".join(
        f"{name} => …" for name in parameters[3:]
    )
    for n, argument in enumerate(call.given):
        if not argument.words:
            raise argument.refused("an argument is missing", form)
        name = _parameter(call, n, argument, form)
        if name in bound:
            raise argument.refused(f"`{name}` is given twice", form)
        bound[name] = argument
    for name in parameters:
        if name not in bound and name not in DEFAULTS:
            raise call.refused(f"{call.function} needs `{name}`", form)
    return replace(call, arguments=bound)


def _parameter(call: Call, n: int, argument: Argument, form: str) -> str:
    parameters = FUNCTIONS[call.function]
    if argument.name is None:
        if any(before.name for before in call.given[:n]):
            raise argument.refused("an argument without a name follows one with a name", form)
        if n >= len(parameters):
            raise argument.refused(f"{call.function} takes {len(parameters)} arguments", form)
        return parameters[n]
    name = argument.name.lower()
    if name not in parameters:
        near = difflib.get_close_matches(name, parameters, 1)
        meant = f"did you mean `{near[0]}`? " if near else ""
        raise argument.refused(f"{call.function} has no argument `{argument.name}`", meant + form)
    return name


def replaced(text: str, parts: Sequence[tuple[Call, str]]) -> str:
    """The statement with other SQL in place of these calls; the rest stays as it is."""
    out, at = [], 0
    for call, words in parts:
        out += [text[at : call.at], words]
        at = call.end
    return "".join([*out, text[at:]])
