"""Spark DataFrames as Arrow batches: moved into this process, or mapped by Python workers.

All without pandas, which PySpark asks for where it does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

#: Arrow batches of one partition → those that become of it.
Mapper = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: Bytes of numbers, by Spark's name of their type.
NUMBERS = {"boolean": 1, "byte": 1, "integer": 4, "float": 4, "date": 4, "long": 8, "double": 8}
#: Bytes that one job brings over at once. The JVM holds them a few times on their way.
COLLECT_BYTES = 256 * 1024 * 1024
#: Bytes of a partition that is streamed, about: the JVM holds two of them, each a few times.
PART_BYTES = 32 * 1024 * 1024
MOST_PARTS = 100_000
#: What a row weighs besides its texts, vector and payload: ids, hashes, numbers.
ROW_BYTES = 256


def collect(frame: DataFrame) -> list[pa.RecordBatch]:
    """All rows at once, in one job: for what is known to be small."""
    return frame._collect_as_arrow()  # type: ignore[no-any-return]


def collect_light(
    frame: DataFrame, wide: Collection[str], most: int
) -> list[pa.RecordBatch] | None:
    """All rows at once, in one job; None if they are too large for that.

    Args:
        wide: the columns whose values may be large.
        most: as many rows come at most. Each may have its share of what fits; the values of a row
            that is larger stay behind, so that the job cannot fail by its size.
    """
    fits = f"{weight(frame, wide)} <= {COLLECT_BYTES // max(most, 1)} AS fits"
    light = [f"IF(fits, {c}, NULL) AS {c}" if c in wide else c for c in frame.columns]
    batches = collect(frame.selectExpr("*", fits).selectExpr(*light, "fits"))
    if not all(pc.all(b.column("fits")).as_py() for b in batches if b.num_rows):
        return None
    return [b.select(frame.columns) for b in batches]


def weight(frame: DataFrame, wide: Collection[str], known: Mapping[str, int] | None = None) -> str:
    """About how many bytes a row has, as an expression.

    Args:
        known: columns whose values all have as many bytes, so that none is read to find out.
    """
    told = [str(n) for c, n in (known or {}).items() if c in wide]
    fields = [f for f in frame.schema.fields if f.name in wide and f.name not in (known or {})]
    return " + ".join([f"{ROW_BYTES}L", *told, *filter(None, map(_value_bytes, fields))])


def _value_bytes(field: StructField) -> str:
    kind, name = field.dataType.typeName(), f"`{field.name}`"
    if kind in ("string", "binary"):
        return f"coalesce(octet_length({name}), 0)"
    if kind == "array" and (width := NUMBERS.get(field.dataType.elementType.typeName())):
        return f"{width} * coalesce(size({name}), 0)"
    if kind in ("array", "map", "struct"):
        # A number of one digit takes two characters there and eight bytes in memory.
        return f"4 * coalesce(octet_length(to_json(struct({name}))), 0)"
    return ""


def in_small_parts(frame: DataFrame, size: int) -> DataFrame:
    """Rows in partitions that fit into memory one by one, as `stream` needs it.

    They are dealt out one by one: large rows that lie together in a file come apart.
    """
    parts = min(-(-size // PART_BYTES), MOST_PARTS)
    return frame if parts <= 1 else frame.repartition(parts)


def stream(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """All rows, one Spark partition after the other, the next one being made meanwhile."""
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
    served = jvm.org.apache.spark.api.python.PythonRDD.toLocalIteratorAndServe(
        frame._jdf.toArrowBatchRdd(), True
    )
    for message in _local_iterator_from_socket(served, Bytes()):
        yield pa.ipc.read_record_batch(pa.py_buffer(message), schema)


def mapped(frame: DataFrame, function: Mapper, schema: StructType | str) -> DataFrame:
    """`DataFrame.mapInArrow`, which refuses to work where there is no pandas."""
    from pyspark.rdd import PythonEvalType
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction

    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    call = UserDefinedFunction(function, returnType=schema, evalType=kind)
    columns = call(*[frame[column] for column in frame.columns])
    return DataFrame(frame._jdf.pythonMapInArrow(columns._jc.expr(), False), frame.sparkSession)
