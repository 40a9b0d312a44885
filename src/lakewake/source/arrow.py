"""Spark DataFrames as Arrow batches: collected by this process, or mapped by Python workers.

None of this needs pandas, which PySpark's own versions of these functions require.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakewake.spark.own import active

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

#: Turns the Arrow batches of one partition into others.
Mapper = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: Bytes of a number, by Spark's name for its type.
NUMBERS = {"boolean": 1, "byte": 1, "integer": 4, "float": 4, "date": 4, "long": 8, "double": 8}
#: Up to this many rows are collected in one job; more are streamed.
COLLECT_ROWS = 100_000
#: Most bytes that one job collects. The JVM holds several copies of them on the way.
COLLECT_BYTES = 256 * 1024 * 1024
#: Approximate bytes of a streamed partition. The JVM holds several copies of two of them.
PART_BYTES = 32 * 1024 * 1024
MOST_PARTS = 100_000
#: Bytes of a row besides its texts, vector and payload: ids, hashes, numbers.
ROW_BYTES = 256


def collect(frame: DataFrame) -> list[pa.RecordBatch]:
    """All rows at once, in one job. Only for results known to be small."""
    return frame._collect_as_arrow()  # type: ignore[no-any-return]


def collect_light(
    frame: DataFrame, wide: Collection[str], most: int
) -> list[pa.RecordBatch] | None:
    """All rows at once, in one job; None if they are too large for that.

    Args:
        wide: the columns whose values may be large.
        most: the largest number of rows that can come. Each may take an equal share of
            `COLLECT_BYTES`; the values of a larger row are left out, so that the job cannot fail
            because of its size.
    """
    fits = f"{weight(frame, wide)} <= {COLLECT_BYTES // max(most, 1)} AS fits"
    light = [f"IF(fits, {c}, NULL) AS {c}" if c in wide else c for c in frame.columns]
    batches = collect(frame.selectExpr("*", fits).selectExpr(*light, "fits"))
    if not all(pc.all(b.column("fits")).as_py() for b in batches if b.num_rows):
        return None
    return [b.select(frame.columns) for b in batches]


def weight(frame: DataFrame, wide: Collection[str], known: Mapping[str, int] | None = None) -> str:
    """The approximate bytes of a row, as an expression.

    Args:
        known: columns whose values all have this many bytes, so that none has to be read.
    """
    fixed = [str(n) for c, n in (known or {}).items() if c in wide]
    fields = [f for f in frame.schema.fields if f.name in wide and f.name not in (known or {})]
    return " + ".join([f"{ROW_BYTES}L", *fixed, *filter(None, map(_value_bytes, fields))])


def _value_bytes(field: StructField) -> str:
    kind, name = field.dataType.typeName(), f"`{field.name}`"
    if kind in ("string", "binary"):
        return f"coalesce(octet_length({name}), 0)"
    if kind == "array" and (width := NUMBERS.get(field.dataType.elementType.typeName())):
        return f"{width} * coalesce(size({name}), 0)"
    if kind in ("array", "map", "struct"):
        # A number of one digit takes two characters in JSON and eight bytes in memory.
        return f"4 * coalesce(octet_length(to_json(struct({name}))), 0)"
    return ""


def in_small_parts(frame: DataFrame, size: int) -> DataFrame:
    """The rows in partitions that each fit into memory, as `stream` requires.

    Rows are distributed one by one, so large rows that are neighbours in a file are separated.
    """
    parts = min(-(-size // PART_BYTES), MOST_PARTS)
    return frame if parts <= 1 else frame.repartition(parts)


def stream(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """All rows, one Spark partition at a time; the next one is computed in the meantime."""
    from pyspark.rdd import _local_iterator_from_socket
    from pyspark.serializers import FramedSerializer
    from pyspark.sql.pandas.types import to_arrow_schema

    class Bytes(FramedSerializer):  # type: ignore[misc]
        def loads(self, data: bytes) -> bytes:
            return data

        def dumps(self, data: bytes) -> bytes:
            return data

    schema = to_arrow_schema(frame.schema)
    jvm: Any = frame.sparkSession._jvm
    # Spark compiles the read here, with the settings of the thread's active session.
    with active(frame.sparkSession):
        served = jvm.org.apache.spark.api.python.PythonRDD.toLocalIteratorAndServe(
            frame._jdf.toArrowBatchRdd(), True
        )
    for message in _local_iterator_from_socket(served, Bytes()):
        yield pa.ipc.read_record_batch(pa.py_buffer(message), schema)


def mapped(frame: DataFrame, function: Mapper, schema: StructType | str) -> DataFrame:
    """`DataFrame.mapInArrow`, which does not work without pandas."""
    from pyspark.rdd import PythonEvalType
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction

    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    call = UserDefinedFunction(function, returnType=schema, evalType=kind)
    columns = call(*[frame[column] for column in frame.columns])
    return DataFrame(frame._jdf.pythonMapInArrow(columns._jc.expr(), False), frame.sparkSession)
