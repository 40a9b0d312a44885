"""Statements that search: the calls of our functions become what Spark can plan.

Spark 3.5 has to know the columns of a table function before it runs, whatever its arguments are. So
`vector_search` itself has one `payload` column for every index. Here the index is known: a call
becomes one of a function whose columns are those of this index, or a view of a DataFrame.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from lakewake.api import Index
from lakewake.errors import ConfigError, SqlError
from lakewake.model.choices import one_of
from lakewake.model.query import Mode
from lakewake.model.recipe import RESERVED
from lakewake.search.run import MAX_K
from lakewake.search.where import check_columns
from lakewake.search.where_json import read_where
from lakewake.sql.calls import DEFAULTS, FUNCTIONS, bind, replaced
from lakewake.sql.parse import parse
from lakewake.sql.session import VectorSession, define
from lakewake.sql.statements import Argument, Call, Name, Other, Value
from lakewake.sql.tokens import tokens
from lakewake.sql.worker import HANDLERS, OWN_COLUMNS, as_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lakewake.model.recall import Searching

#: Statements that are planned at once, and need our views no more afterwards.
_QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "EXPLAIN", "(")


@dataclass(frozen=True)
class Planned:
    """A statement for Spark.

    Attributes:
        notes: what Spark's own plan does not show, a line per call.
    """

    text: str
    notes: tuple[str, ...] = ()


def select(session: VectorSession, statement: Other) -> DataFrame:
    """What Spark answers to a statement that calls our functions.

    Raises:
        SqlError: an argument cannot be used.
    """
    # Only a query is planned at once. A view that SQL creates is planned whenever it is read, so it
    # must not need a temporary view of ours.
    views: list[str] = []
    is_query = tokens(statement.text)[0].key in _QUERIES
    try:
        planned = _planned(session, statement, views if is_query else None)
        frame = session.spark.sql(planned.text)
    finally:
        for view in views:
            session.spark.catalog.dropTempView(view)
    if statement.explain:
        (plan,) = frame.collect()[0]
        notes = "\n".join(("== Vector Search ==", *planned.notes, ""))
        frame = session.spark.createDataFrame([(f"{notes}\n{plan}",)], "plan string")
    return frame


def _planned(session: VectorSession, statement: Other, views: list[str] | None) -> Planned:
    """The statement for Spark.

    Args:
        views: gets the names of temporary views that the statement reads; None: it may not.
    """
    parts, notes = [], []
    for call in statement.calls:
        call = bind(call)
        index = _index_of(session, call)
        if index is None:
            continue
        _check(call, index)
        words = "" if views is None else _view(session, call, index)
        if views is not None and words:
            views.append(words)
        words = words or _words(session, call, index)
        parts.append((call, f"(SELECT * FROM {words})" if call.lateral else words))
        if statement.explain:
            notes.append(_note(call, index))
    return Planned(replaced(statement.text, parts), tuple(notes))


def _index_of(session: VectorSession, call: Call) -> Index | None:
    """The index that a call names; None if Spark has to compute the name."""
    named = call.arguments["index"]
    if not named.value or not isinstance(named.value[0], str):
        return None
    return session.index(Name(call.text, named.at, (named.value[0],), literal=True))


def _view(session: VectorSession, call: Call, index: Index) -> str:
    """A temporary view of the answers, if a DataFrame of the index gives them; '' if none does."""
    question = call.arguments["question"]
    values = {name: a.value[0] for name, a in call.arguments.items() if a.value}
    computed = call.arguments.keys() - values.keys() - {"question"}
    if computed or (question.table is None) != (call.function == "vector_range"):
        return ""
    if question.table is None and not isinstance(values.get("question"), str | tuple):
        return ""
    try:
        frame = _batch(session, call, index) if question.table else _range(index, values)
    except SqlError:
        raise
    except ConfigError as error:
        raise question.refused(error.fact, error.hint) from error
    name = f"lakewake_{uuid4().hex}"
    frame.createOrReplaceTempView(name)
    return name


def _batch(session: VectorSession, call: Call, index: Index) -> DataFrame:
    """The nearest rows of each question in a table."""
    table = _questions(session, call)
    frame = session.spark.sql(table)
    column = _question_column(call, frame)
    is_text = frame.schema[column].dataType.typeName() == "string"
    values: dict[str, Any] = {n: a.value[0] for n, a in call.arguments.items() if a.value}
    named = ("k", "where", "mode", "exact")
    options: dict[str, Any] = {name: values[name] for name in named if name in values}
    options["text" if is_text else "vector"] = column
    return index.search_batch(frame, **options)


def _range(index: Index, values: Mapping[str, Any]) -> DataFrame:
    """All rows within a distance of a question."""
    return index.within(values["question"], values["distance"], where=values.get("where"))


def _questions(session: VectorSession, call: Call) -> str:
    """The SQL of a table of questions, which may call our functions too."""
    inner = parse(call.arguments["question"].table or "")
    assert isinstance(inner, Other)
    return _planned(session, inner, None).text


def _words(session: VectorSession, call: Call, index: Index) -> str:
    """The SQL that takes the place of a call."""
    if call.arguments["question"].table is not None:
        return _joined(session, call, index)
    if (column := call.arguments.get("column")) is not None:
        raise column.refused(
            "`column` names the questions in TABLE(…)", "remove it, or pass a table of questions"
        )
    return f"{_typed(session, call, index)}({', '.join(_given(call))})"


def _given(call: Call) -> Iterator[str]:
    """The arguments for Spark, in order: Spark 3.5 does not know them by name."""
    for parameter in FUNCTIONS[call.function]:
        if parameter in call.arguments:
            yield call.arguments[parameter].words
        elif parameter != "column":
            yield _literal(DEFAULTS[parameter])


def _literal(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    return f"'{value}'" if isinstance(value, str) else str(value)


def _typed(session: VectorSession, call: Call, index: Index) -> str:
    """The name of a function with the columns of one index."""
    with index.view() as view:
        fields = [field for field in view.schema if not field.name.startswith(RESERVED)]
    types = {field.name: _type_for_spark(field.type)[0] for field in fields}
    given = str(call.arguments["index"].value[0])
    known = session.known_as(given)
    # One function per index and set of columns: a plan that was made keeps its own.
    mark = zlib.crc32(f"{given} {known} {types}".encode())
    name = f"lakewake_{call.function}_{re.sub(r'[^A-Za-z0-9]', '_', index.name)}_{mark:08x}"
    define(session.spark, name, HANDLERS[call.function](known, as_columns(types)), _columns(fields))
    return name


def _columns(fields: list[pa.Field]) -> StructType:
    from pyspark.sql.types import StructType, _parse_datatype_string

    own = _parse_datatype_string(OWN_COLUMNS)
    assert isinstance(own, StructType)
    for field in fields:
        own = own.add(field.name, _type_for_spark(field.type)[1])
    return own


def _type_for_spark(type: pa.DataType) -> tuple[pa.DataType | None, Any]:
    """A payload column's type in Arrow and in Spark; (None, text) if Spark does not have it."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StringType

    try:
        return type, from_arrow_type(type, prefer_timestamp_ntz=True)
    except (PySparkException, TypeError):
        return None, StringType()


def _joined(session: VectorSession, call: Call, index: Index) -> str:
    """A search by each row of a table of questions, beside the columns of that row."""
    question, table = call.arguments["question"], _questions(session, call)
    column = _question_column(call, session.spark.sql(table))
    asked = replace(question, words=f"q.`{column.replace('`', '``')}`", table=None)
    arguments = {name: a for name, a in call.arguments.items() if name != "column"}
    each = replace(call, arguments={**arguments, "question": asked})
    found = _words(session, each, index)
    return f"(SELECT q.*, v.* FROM ({table}) q, LATERAL (SELECT * FROM {found}) v)"


def _question_column(call: Call, frame: DataFrame) -> str:
    """The column of the questions: the one that is named, or the only one that can be.

    Raises:
        SqlError: there is no such column, or several.
    """
    from pyspark.sql.types import ArrayType, StringType

    columns = frame.schema.fields
    named = call.arguments.get("column")
    if named is not None:
        wanted = str(named.value[0]) if named.value else named.words
        found = [str(c.name) for c in columns if c.name.lower() == wanted.lower()]
        if len(found) != 1:
            names = ", ".join(c.name for c in columns)
            raise named.refused(
                f"the table of questions has no column `{wanted}`",
                f"use one of its columns: {names}",
            )
        return found[0]
    for kind in (StringType, ArrayType):
        found = [str(c.name) for c in columns if isinstance(c.dataType, kind)]
        if len(found) == 1:
            return found[0]
        if found:
            break
    raise call.arguments["question"].refused(
        "which column holds the questions is not clear", "name it: column => 'question'"
    )


def _note(call: Call, index: Index) -> str:
    """What EXPLAIN shows of a call: mode, filter, and how much of the index is read."""
    with index.view() as view:
        found, instant = view.searching(), view.instant
    mode, where = _shown(call, "mode"), _shown(call, "where")
    many = call.arguments["question"].table is not None
    exact = many or call.function == "vector_range" or _shown(call, "exact") == "true"
    size = "distance" if call.function == "vector_range" else "k"
    return (
        f"{call.function} of {index.name}: mode {'vector' if mode == 'none' else mode}, "
        f"{size} {_shown(call, size)}, filter {where}, "
        f"cells {cells_read(found, mode, exact=exact, filtered=where != 'none')}, instant {instant}"
    )


def _shown(call: Call, parameter: str) -> str:
    """An argument as EXPLAIN shows it."""
    argument = call.arguments.get(parameter)
    if argument is not None and not argument.value:
        return argument.words
    value = argument.value[0] if argument else DEFAULTS.get(parameter)
    return "none" if value is None else value if isinstance(value, str) else _literal(value)


def cells_read(found: Searching, mode: str, *, exact: bool, filtered: bool) -> str:
    """How many cells of an index a search reads, for people."""
    if mode == Mode.KEYWORD:
        return "none, words only"
    total = found.cells.cells if found.cells else found.partitions
    if exact or found.mode == "exact":
        return f"all {total}" if total else "none, every vector is compared"
    if not total:
        # Qdrant has no cells.
        return "none, a graph is searched"
    return f"up to {total} because of the filter" if filtered else f"{found.probes} of {total}"


def _check(call: Call, index: Index) -> None:
    """Check the arguments that the statement spells out, before Spark runs anything.

    Raises:
        SqlError: one of them cannot be used.
    """
    for parameter, argument in call.arguments.items():
        if argument.value and parameter in _CHECKS:
            try:
                _CHECKS[parameter](argument, argument.value[0], index)
            except SqlError:
                raise
            except ConfigError as error:
                raise argument.refused(error.fact, error.hint) from error


def _check_k(argument: Argument, value: Value, index: Index) -> None:
    if type(value) is not int or not 0 < value <= MAX_K:
        raise argument.refused(f"k is {value}", f"ask for 1 to {MAX_K:,} rows")


def _check_mode(argument: Argument, value: Value, index: Index) -> None:
    one_of(Mode, "mode", str(value))


def _check_where(argument: Argument, value: Value, index: Index) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise argument.refused("the filter is not a text", "where => \"country = 'Italy'\"")
    where = read_where(value)
    with index.view() as view:
        check_columns(where, view.schema)


def _check_question(argument: Argument, value: Value, index: Index) -> None:
    if isinstance(value, str) and not value.strip():
        raise argument.refused("the text to search for is blank", "pass a text to search for")
    if not isinstance(value, tuple):
        return
    with index.view() as view:
        dimension = view.recipe.model.dimension
    if len(value) != dimension:
        raise argument.refused(
            f"the query vector has {len(value)} numbers, the index {dimension} dimensions",
            f"pass a list of {dimension} finite numbers",
        )


def _check_distance(argument: Argument, value: Value, index: Index) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise argument.refused(f"the distance is {value!r}", "pass a number, such as 0.4")


_CHECKS = {
    "k": _check_k,
    "mode": _check_mode,
    "where": _check_where,
    "question": _check_question,
    "distance": _check_distance,
}
