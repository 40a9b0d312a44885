"""The values that Hudi shows in partition columns.

A snapshot takes most of them from the path of a row's partition: `50%20off` shows as `50 off`, and
a timestamp as null. Files hold what was written, and the incremental query parses paths
differently. So the snapshot's own reader is asked, once for each path.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from lakewake.errors import HistoryLost
from lakewake.source import COMPARE_HINT
from lakewake.source.view import hudi_reader, partition_path, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

PATH = "_lakewake_path"
#: Up to this many paths are looked up in a map, so that a small sync needs no join.
LOOKED_UP = 50
#: How to restore a value that Spark stores as a plain number.
_RESTORED = {
    "date": "date_from_unix_date(int({}))",
    "timestamp": "timestamp_micros(bigint({}))",
    "timestamp_ntz": "CAST(timestamp_micros(bigint({})) AS timestamp_ntz)",
}


@dataclass(frozen=True)
class Shown:
    """How Hudi's snapshot shows a table.

    Attributes:
        schema: all columns.
        types: the columns that it takes from the path, with their SQL types.
        values: partition path → the values that it shows in these columns, as text.
    """

    schema: StructType
    types: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)

    def applied(self, rows: DataFrame, columns: Collection[str]) -> DataFrame:
        """Rows of the known partitions, with `columns` as the snapshot shows them."""
        rows = self._as_text(rows)
        wanted = [name for name in self.types if name in columns]
        if not wanted:
            return rows
        at = [list(self.types).index(name) for name in wanted]
        known = [(path, *(values[n] for n in at)) for path, values in self.values.items()]
        names = [f"_lakewake_{n}" for n in range(len(wanted))]
        path = partition_path()
        extended = (_looked_up if len(known) <= LOOKED_UP else _joined)(rows, path, known, names)
        values = {c: _value(n, self.types[c]) for c, n in zip(wanted, names, strict=True)}
        return extended.withColumns(values).drop(PATH, *names)

    def _as_text(self, rows: DataFrame) -> DataFrame:
        """The rows, with values that the snapshot shows as text cast to text."""
        from pyspark.sql import functions as F  # noqa: N812

        texts = {f.name for f in self.schema if f.dataType.typeName() == "string"}
        other = [f.name for f in rows.schema if f.dataType.typeName() != "string"]
        changed = {c: F.col(quoted(c)).cast("string") for c in other if c in texts}
        return rows.withColumns(changed) if changed else rows


def _looked_up(
    rows: DataFrame, path: Column, known: Sequence[Sequence[str | None]], names: Sequence[str]
) -> DataFrame:
    """The rows with the values of their path in columns `names`; null for an unknown path."""
    from pyspark.sql import functions as F  # noqa: N812

    def values(n: int) -> Column:
        pairs = ((F.lit(p[0]), F.lit(p[n]).cast("string")) for p in known)
        return F.create_map(*chain.from_iterable(pairs))[path]

    return rows.withColumns({name: values(n) for n, name in enumerate(names, 1)})


def _joined(
    rows: DataFrame, path: Column, known: Sequence[Sequence[str | None]], names: Sequence[str]
) -> DataFrame:
    """Like `_looked_up`, for many paths."""
    from pyspark.sql import functions as F  # noqa: N812

    schema = ", ".join(f"{name} string" for name in (PATH, *names))
    values = F.broadcast(rows.sparkSession.createDataFrame(known, schema))
    return rows.join(values, path == F.col(PATH), "left")


def as_shown(spark: SparkSession, path: str, partitions: Collection[str]) -> Shown:
    """How the snapshot of the table at `path` shows rows of these partitions.

    Raises:
        HistoryLost: this version of Hudi does not show it, or cannot parse one of the paths.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError

    rows = hudi_reader(spark).load(path)
    try:
        return _asked(rows, partitions)
    except Py4JNetworkError:
        raise
    except (Py4JError, TypeError) as error:
        raise HistoryLost(
            f"cannot find out what Hudi shows in the partition columns of {path}",
            hint=COMPARE_HINT,
        ) from error


def timeline_of(rows: DataFrame) -> dict[str, str] | None:
    """The completed commits that a Hudi read is based on; None if this Hudi does not show them."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    try:
        timeline = _relation(rows).location().metaClient().getActiveTimeline()
        done = timeline.getCommitsTimeline().filterCompletedInstants().getInstants()
        return {i.requestedTime(): i.getCompletionTime() for i in done}
    except Py4JNetworkError:
        raise
    except (Py4JError, TypeError):
        return None


def _asked(rows: DataFrame, partitions: Collection[str]) -> Shown:
    relation = _relation(rows)
    names = list(relation.partitionSchema().fieldNames())
    # A timestamp from which paths are formatted, and the ordering field, are read from the files.
    kept = _strings(_private(relation.fileFormat(), "mandatoryFields"))
    types = {
        f.name: f.dataType.simpleString()
        for f in rows.schema
        if f.name in names and f.name not in kept
    }
    if not types:
        return Shown(rows.schema)
    index = relation.location()
    columns = index.getPartitionColumns()
    at = [names.index(name) for name in types]
    values = {}
    for partition in sorted(partitions):
        parsed = index.parsePartitionColumnValues(columns, partition)
        values[partition] = tuple(_text(parsed[n]) for n in at)
    return Shown(rows.schema, types, values)


def _relation(rows: DataFrame) -> Any:
    plan = rows._jdf.queryExecution().analyzed()
    while not plan.getClass().getSimpleName().endswith("LogicalRelation"):
        plan = plan.children().head()
    return plan.relation()


def _private(value: Any, name: str) -> Any:
    """A field of a Java object that has no getter."""
    found = value.getClass().getDeclaredField(name)
    found.setAccessible(True)
    return found.get(value)


def _strings(names: Any) -> frozenset[str]:
    return frozenset(str(names.apply(n)) for n in range(names.length()))


def _text(value: Any) -> str | None:
    """Spark's internal value as text; booleans in lower case, as SQL writes them."""
    if value is None:
        return None
    if isinstance(value, (bytes, bytearray)):
        raise TypeError("bytes have no text")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(column: str, type_: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    template = _RESTORED.get(type_, f"CAST({{}} AS {type_})")
    return F.expr(template.format(quoted(column)))
