"""Spark DataFrames as Arrow batches: moved into this process, or mapped by Python workers.

All without pandas, which PySpark asks for where it does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: Arrow batches of one partition → those that become of it.
Mapper = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: How much larger rows are in memory than in compressed files, about.
UNPACKED = 6
PART_BYTES = 128 * 1024 * 1024
MOST_PARTS = 100_000


def collect(frame: DataFrame) -> list[pa.RecordBatch]:
    """All rows at once, in one job: for what is known to be small."""
    return frame._collect_as_arrow()  # type: ignore[no-any-return]


def in_small_parts(frame: DataFrame) -> DataFrame:
    """A scan whose partitions fit into the driver's memory one by one, as `stream` needs it."""
    size = int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    wanted = size * UNPACKED // PART_BYTES
    # A source that does not know its size claims the largest number there is.
    if wanted > MOST_PARTS or wanted <= frame._jdf.toArrowBatchRdd().getNumPartitions():
        return frame
    return frame.repartition(wanted)


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
