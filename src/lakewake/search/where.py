"""`--where`: one small grammar, read into a value. Text of a person never reaches a store."""

from __future__ import annotations

import datetime
import difflib
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import TYPE_CHECKING, ClassVar, NoReturn

import pyarrow as pa

from lakewake.errors import FilterError
from lakewake.model.chunks import RESERVED
from lakewake.model.where import (
    And,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Where,
    check_types,
    leaves,
)

if TYPE_CHECKING:
    # Takes most of a second to import, so only a search that has a filter does.
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect

MAX_LENGTH = 10_000
#: The parser's own stack, and Lance's, end not far above.
MAX_NESTING = 20
#: Columns of ours that may be filtered by.
OWN_COLUMNS = ("_key", "_partition", "_field", "_instant")
GRAMMAR = (
    "column = 'text' | != <> < <= > >= with 'text', 40, -1.5, true, DATE '2024-01-31', "
    "TIMESTAMP '2024-01-31 12:00:00' (UTC unless it ends in an offset); IN (…), BETWEEN … AND …, "
    "LIKE 'a%', IS NULL, NOT, AND, OR, ( ); "
    'a name that is no plain word stands in "double quotes" or `backticks`'
)

_OPS = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
#: The parts of a node that the grammar knows; a node with others says more than its type tells.
_PARTS = {"this", "expression", "expressions", "low", "high", "to", "negate", "is_string", "quoted"}


def parse_where(text: str) -> Where:
    """A filter as a value.

    Raises:
        FilterError: it does not parse, or does more than compare columns with literals.
    """
    if len(text) > MAX_LENGTH:
        raise _refusal(f"the filter has {len(text)} characters, {MAX_LENGTH} are read")
    try:
        return _where(_parse(text))
    except RecursionError as error:
        raise _refusal(f"the filter nests more than {MAX_NESTING} deep") from error


def check_columns(where: Where, schema: pa.Schema) -> None:
    """Refuse a filter that names a column which cannot be filtered by, or compares it wrongly.

    Raises:
        FilterError: says which columns there are.
    """
    payload = [name for name in schema.names if not name.startswith(RESERVED)]
    for leaf in leaves(where):
        if leaf.column not in payload and leaf.column not in OWN_COLUMNS:
            _refuse_column(leaf.column, payload)
    check_types(where, schema)


def _refuse_column(name: str, payload: list[str]) -> NoReturn:
    near = difflib.get_close_matches(name, payload, n=1)
    folded = [p for p in payload if p.casefold() == name.casefold()]
    guess = f"did you mean {(folded or near)[0]!r}? " if folded or near else ""
    there = ", ".join(payload) or "none"
    raise FilterError(
        f"the index has no payload column {name!r}",
        hint=f"{guess}payload columns: {there}; also {', '.join(OWN_COLUMNS)}",
    )


def _refusal(fact: str) -> FilterError:
    return FilterError(fact, hint=GRAMMAR)


@cache
def _dialect() -> Dialect:
    from sqlglot import tokens
    from sqlglot.dialects.dialect import Dialect

    class Filters(Dialect):
        class Tokenizer(tokens.Tokenizer):
            IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]

    return Filters()


def _parse(text: str) -> exp.Expr:
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        _check_tokens(text)
        found = _dialect().parse_into(exp.Condition, text)
    except SqlglotError as error:
        raise _refusal(f"the filter does not parse{_place(error)}") from error
    if len(found) > 1:
        raise _refusal("a filter is one condition, this is several statements")
    if not found or found[0] is None:
        raise _refusal("the filter is empty")
    return found[0]


def _place(error: Exception) -> str:
    known = getattr(error, "errors", None)
    if not known:
        return ""
    return f" at character {known[0]['col']}, near {known[0]['highlight']!r}"


def _check_tokens(text: str) -> None:
    from sqlglot.tokenizer_core import TokenType

    depth = 0
    for token in _dialect().tokenize(text):
        if token.comments:
            raise _refusal("a filter has no comments")
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth > MAX_NESTING:
            raise _refusal(f"the filter nests more than {MAX_NESTING} deep")


def _where(node: exp.Expr) -> Where:
    from sqlglot import exp

    kind = type(node)
    if kind is exp.Paren:
        return _where(node.this)
    if kind is exp.Not:
        return Not(_where(node.this))
    if kind in (exp.And, exp.Or):
        parts = tuple(_where(operand) for operand in _operands(node))
        return And(parts) if kind is exp.And else Or(parts)
    return _condition(node)


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of one connector, which is as deep as it is long."""
    kind, operands = type(node), []
    while type(node) is kind:
        operands.append(node.expression)
        node = node.this
    return [node, *reversed(operands)]


def _condition(node: exp.Expr) -> Where:
    from sqlglot import exp

    kind = type(node)
    known = (exp.In, exp.Between, exp.Like, exp.Is)
    if (kind not in known and kind.__name__ not in _OPS) or _unknown_parts(node):
        raise _not_allowed(node)
    column = _column(node.this)
    if kind is exp.Between:
        low, high = _literal(node.args["low"]), _literal(node.args["high"])
        return And((Compare(column, ">=", low), Compare(column, "<=", high)))
    if kind is exp.In:
        return In(column, _list(node))
    if kind is exp.Like:
        like = Like(column, _pattern(node.expression))
        return Not(like) if node.args.get("negate") else like
    if kind is exp.Is:
        return IsNull(column) if type(node.expression) is exp.Null else _refuse(node)
    return Compare(column, _OPS[kind.__name__], _literal(node.expression))


def _unknown_parts(node: exp.Expr) -> bool:
    return not {name for name, value in node.args.items() if value} <= _PARTS


def _column(node: exp.Expr) -> str:
    from sqlglot import exp

    node = node.unnest()
    if type(node) is not exp.Column or type(node.this) is not exp.Identifier:
        raise _refusal(f"a comparison begins with a column, not with {_shown(node)}")
    if _unknown_parts(node):
        raise _refusal(f"{_shown(node)} is no plain column name")
    return node.name


def _list(node: exp.Expr) -> tuple[Literal, ...]:
    if not node.expressions:
        raise _refusal("IN has an empty list")
    return tuple(_literal(e) for e in node.expressions)


def _pattern(node: exp.Expr) -> str:
    pattern = _literal(node)
    if not isinstance(pattern, str):
        raise _refusal(f"LIKE takes a text, not {_shown(node)}")
    return pattern


def _literal(node: exp.Expr) -> Literal:
    from sqlglot import exp

    node = node.unnest()
    if type(node) is exp.Neg and type(node.this) is exp.Literal and not node.this.is_string:
        return -_number(node.this.name)
    if type(node) is exp.Literal:
        return node.name if node.is_string else _number(node.name)
    if type(node) is exp.Boolean:
        return bool(node.this)
    if type(node) is exp.Cast and type(node.this) is exp.Literal and not _unknown_parts(node):
        return _moment(node)
    raise _not_allowed(node)


def _number(text: str) -> int | Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise _refusal(f"{text!r} is no number") from error
    return int(text) if text.isdecimal() and len(text) < 40 else number


def _moment(node: exp.Expr) -> datetime.date | datetime.datetime:
    from sqlglot import exp

    text, wanted = node.this.name, node.args["to"].this
    try:
        if wanted == exp.DType.DATE:
            return datetime.date.fromisoformat(text)
        if wanted in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ):
            return datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise _refusal(f"{text!r} is no {wanted.value}") from error
    raise _not_allowed(node)


def _refuse(node: exp.Expr) -> NoReturn:
    raise _not_allowed(node)


def _not_allowed(node: exp.Expr) -> FilterError:
    from sqlglot import exp

    names = {
        exp.Cast: "a cast",
        exp.Query: "a subquery",
        exp.Column: "a column, where a literal or a comparison belongs",
        exp.Null: "NULL, which only IS NULL asks for",
        exp.Connector: "a condition, where a literal belongs",
        exp.Func: "a function call",
        exp.Binary: "an operation",
        exp.Condition: "more than the grammar has",
    }
    what = next((name for kind, name in names.items() if isinstance(node, kind)), "no condition")
    return _refusal(f"not allowed in a filter: {_shown(node)} ({what})")


def _shown(node: exp.Expr) -> str:
    text = node.sql()
    return text if len(text) <= 60 else f"{text[:57]}…"
