"""What a statement says, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakewake.errors import SqlError

#: A value that a statement spells out.
Value = str | int | float | bool | None | tuple["Value", ...]


@dataclass(frozen=True)
class Name:
    """A name in a statement.

    Attributes:
        names: `db.table` has two; a path or an address, in quotes, has one.
        literal: whether it is a text in quotes.
    """

    text: str
    at: int
    names: tuple[str, ...]
    literal: bool = False

    def __str__(self) -> str:
        return ".".join(self.names)

    def refused(self, fact: str, hint: str) -> SqlError:
        """An error about this name."""
        return SqlError(fact, self.text, self.at, hint=hint)


@dataclass(frozen=True)
class Option:
    """One entry of OPTIONS."""

    text: str
    at: int
    key: str
    value: Value

    def refused(self, fact: str, hint: str) -> SqlError:
        """An error about this option."""
        return SqlError(fact, self.text, self.at, hint=hint)


@dataclass(frozen=True)
class CreateIndex:
    """CREATE VECTOR INDEX."""

    name: Name
    table: Name
    columns: tuple[Name, ...]
    store: Name | None = None
    options: tuple[Option, ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True)
class RefreshIndex:
    """REFRESH VECTOR INDEX."""

    name: Name


@dataclass(frozen=True)
class DropIndex:
    """DROP VECTOR INDEX."""

    name: Name
    if_exists: bool = False


@dataclass(frozen=True)
class ShowIndexes:
    """SHOW VECTOR INDEXES; `folder`: those below a folder instead of the session's."""

    folder: Name | None = None


@dataclass(frozen=True)
class DescribeIndex:
    """DESCRIBE VECTOR INDEX."""

    name: Name


@dataclass(frozen=True)
class Argument:
    """An argument of a call, with the words that spell it.

    Attributes:
        words: the SQL of its value.
        name: its name, if it is written `name => value`.
        value: what it spells out, in a tuple of one; () if it has to be computed.
        table: the SQL of the table, if it is `TABLE(…)`.
    """

    text: str
    at: int
    words: str
    name: str | None = None
    value: tuple[Value, ...] = ()
    table: str | None = None

    def refused(self, fact: str, hint: str) -> SqlError:
        """An error about this argument."""
        return SqlError(fact, self.text, self.at, hint=hint)


@dataclass(frozen=True)
class Call:
    """A call of one of the functions; `text[at:end]` is its SQL.

    Attributes:
        given: its arguments as they are written.
        lateral: whether it comes right after LATERAL.
        arguments: the same by parameter.
    """

    text: str
    function: str
    at: int
    end: int
    given: tuple[Argument, ...] = ()
    lateral: bool = False
    arguments: Mapping[str, Argument] = field(default_factory=dict)

    def refused(self, fact: str, hint: str) -> SqlError:
        """An error about this call."""
        return SqlError(fact, self.text, self.at, hint=hint)


@dataclass(frozen=True)
class Other:
    """Any other statement, which goes to Spark.

    Attributes:
        calls: the calls of our functions in it, in order.
        explain: whether it begins with EXPLAIN.
    """

    text: str
    calls: tuple[Call, ...] = ()
    explain: bool = False


Statement = CreateIndex | RefreshIndex | DropIndex | ShowIndexes | DescribeIndex | Other
