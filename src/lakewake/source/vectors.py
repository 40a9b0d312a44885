"""Hudi's VECTOR columns: bytes of a fixed length in base files, arrays of numbers to a reader."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakewake.errors import HistoryLost
from lakewake.source import COMPARE_HINT
from lakewake.source.view import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

#: The key in a field's metadata under which Hudi notes its own type: `VECTOR(384, DOUBLE)`.
HUDI_TYPE = "hudi_type"
_VECTOR = re.compile(r"VECTOR\s*\(\s*(\d+)\s*(?:,\s*(\w+)\s*)?[,)]", re.IGNORECASE)
#: Hudi's own decoder, which its reader uses too, and its names for the types of the elements.
_DECODER, _DECODE = "org.apache.hudi.io.storage.VectorConversionUtils", "convertBinaryToVectorArray"
_ELEMENTS = "org.apache.hudi.common.schema.HoodieSchema$Vector$VectorElementType"


def is_vector(field: StructField) -> bool:
    """Whether Hudi shows this column as a VECTOR."""
    return bool(_VECTOR.match(field.metadata.get(HUDI_TYPE, "")))


def as_stored(field: StructField) -> StructField:
    """The field with which to read a VECTOR column from base files; `decoded` makes it an array."""
    from pyspark.sql.types import BinaryType, StructField

    kept = {HUDI_TYPE: field.metadata[HUDI_TYPE], "shown": field.dataType.json()}
    return StructField(field.name, BinaryType(), metadata=kept)


def decoded(rows: DataFrame, fields: list[StructField]) -> DataFrame:
    """The rows of base files, with the bytes of fields from `as_stored` as arrays of numbers.

    Raises:
        HistoryLost: this version of Hudi has no such decoder.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError

    vectors = [f for f in fields if is_vector(f)]
    try:
        return rows.withColumns({f.name: _array(rows, f) for f in vectors}) if vectors else rows
    except Py4JNetworkError:
        raise
    except (Py4JError, TypeError) as error:
        raise HistoryLost(
            f"this version of Hudi does not decode column {vectors[0].name!r}", hint=COMPARE_HINT
        ) from error


def _array(rows: DataFrame, field: StructField) -> Column:
    """An expression that decodes a column inside Spark, without Python workers."""
    from pyspark.sql import Column
    from pyspark.sql import functions as F  # noqa: N812

    found = _VECTOR.match(field.metadata[HUDI_TYPE])
    assert found
    spark = rows.sparkSession
    jvm = spark._jvm
    element = getattr(jvm, _ELEMENTS).fromString((found[2] or "FLOAT").upper())
    catalyst, types = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.types
    arguments = [
        F.col(quoted(field.name))._jc.expr(),
        F.lit(int(found[1]))._jc.expr(),
        catalyst.Literal(element, types.ObjectType(element.getClass())),
    ]
    propagates_null = may_be_null = repeatable = True
    call = catalyst.objects.StaticInvoke(
        jvm.org.apache.spark.util.Utils.classForName(_DECODER, True, False),
        spark._jsparkSession.parseDataType(field.metadata["shown"]),
        _DECODE,
        jvm.PythonUtils.toSeq(arguments),
        jvm.PythonUtils.toSeq([]),
        propagates_null,
        may_be_null,
        repeatable,
    )
    return Column(jvm.org.apache.spark.sql.Column(call))
