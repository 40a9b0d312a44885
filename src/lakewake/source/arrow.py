"""Moves a Spark DataFrame into this process as Arrow batches, without pandas or Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def collect(frame: DataFrame) -> list[pa.RecordBatch]:
    """All rows at once, in one job: for what is known to be small."""
    return frame._collect_as_arrow()  # type: ignore[no-any-return]


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
