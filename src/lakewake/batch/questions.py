"""A DataFrame of questions: checked on the driver, made into vectors by executors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewake.batch.nearest import comparable, lengths
from lakewake.config.settings import ModelSettings
from lakewake.embed import for_questions
from lakewake.embed.registry import sent_embedder
from lakewake.errors import ConfigError, SetupError
from lakewake.model.recipe import ModelIdentity

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from lakewake.embed import Embedder

#: Columns of a question on its way: its id, its vector, the columns that are carried along, and
#: the text or vector as it was given.
QUESTION, VECTOR, CARRIED, GIVEN = "question", "vector", "carried", "given"
#: What a question on its way has when no column is carried along.
NO_COLUMN = "none"


@dataclass(frozen=True)
class Asked:
    """Which column of a DataFrame holds the questions.

    Attributes:
        column: its name.
        is_text: whether it holds texts; otherwise vectors.
        carried: the columns that the result shows too.
    """

    column: str
    is_text: bool
    carried: tuple[str, ...]

    def taken(self, queries: DataFrame) -> DataFrame:
        """The questions as `GIVEN`, and the columns to carry along as one."""
        from pyspark.sql import functions as sf

        kept = [sf.col(quoted(name)).alias(f"c{n}") for n, name in enumerate(self.carried)]
        carried = sf.struct(*(kept or [sf.lit(0).alias(NO_COLUMN)]))
        return queries.select(sf.col(quoted(self.column)).alias(GIVEN), carried.alias(CARRIED))

    def shown(self) -> list[Column]:
        """The carried columns under their own names."""
        from pyspark.sql import functions as sf

        return [
            sf.col(CARRIED).getField(f"c{n}").alias(name) for n, name in enumerate(self.carried)
        ]


def quoted(name: str) -> str:
    """A column's name as Spark reads it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def check_session(queries: DataFrame) -> None:
    """Check that the questions are in a session with a JVM.

    Raises:
        SetupError: they are in a session of Spark Connect.
        ConfigError: they are not a DataFrame of PySpark.
    """
    if hasattr(queries, "_jdf") and hasattr(queries, "sparkSession"):
        return
    if type(queries).__module__.startswith("pyspark.sql.connect"):
        raise SetupError(
            "the questions are in a session of Spark Connect, which has no JVM of its own",
            hint="use a classic Spark session",
        )
    raise ConfigError(
        f"the questions are a {type(queries).__name__}, not a DataFrame of PySpark",
        hint="make one with spark.createDataFrame",
    )


def check_questions(
    queries: DataFrame, text: str | None, vector: str | None, result: Sequence[str]
) -> Asked:
    """Check the columns of the questions without reading any.

    Args:
        result: the columns that the result adds.

    Raises:
        ConfigError: a column is missing, has the wrong type, or a name that the result has too.
    """
    if (text is None) == (vector is None):
        raise ConfigError(
            "the questions are in one column, of texts or of vectors",
            hint="pass either text= or vector= with the name of that column",
        )
    name = text if text is not None else vector
    assert name is not None
    types = {field.name: field.dataType for field in queries.schema.fields}
    if name not in types:
        raise ConfigError(
            f"the questions have no column {name!r}",
            hint=f"pass one of their columns: {', '.join(types)}",
        )
    _check_type(name, types[name], text=text is not None)
    carried = tuple(c for c in queries.columns if text is not None or c != name)
    _check_names(carried, result)
    _check_arrow(queries.select(*map(quoted, carried)).schema)
    return Asked(name, text is not None, carried)


def _check_type(name: str, type_: DataType, *, text: bool) -> None:
    from pyspark.sql.types import ArrayType, NumericType, StringType

    if text and not isinstance(type_, StringType):
        raise ConfigError(
            f"column {name!r} holds {type_.simpleString()}, not texts",
            hint="pass vector= if it holds vectors, or cast it to string",
        )
    is_vector = isinstance(type_, ArrayType) and isinstance(type_.elementType, NumericType)
    if not text and not is_vector:
        raise ConfigError(
            f"column {name!r} holds {type_.simpleString()}, not arrays of numbers",
            hint="pass text= if it holds texts; pyspark.ml's vectors become arrays with "
            "vector_to_array",
        )


def _check_names(carried: Sequence[str], result: Sequence[str]) -> None:
    seen = {name.casefold(): name for name in result}
    for name in carried:
        if name.casefold() in seen:
            raise ConfigError(
                f"the questions have a column {name!r}, and so does the result",
                hint=f"rename it: queries.withColumnRenamed({name!r}, 'asked_{name.strip('_')}')",
            )
    if len({name.casefold() for name in carried}) < len(carried):
        raise ConfigError(
            "two columns of the questions have the same name", hint="rename one of them"
        )


def _check_arrow(schema: StructType) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    for field in schema.fields:
        try:
            to_arrow_type(field.dataType)
        except PySparkException as error:
            raise ConfigError(
                f"column {field.name!r} of type {field.dataType.simpleString()} cannot be carried "
                "along",
                hint="drop it from the questions, or cast it",
            ) from error


@dataclass(frozen=True)
class SentModel:
    """What executors embed questions with. It can be pickled.

    Attributes:
        files: the model's settings that name files, and their paths relative to Spark's folder.
    """

    settings: ModelSettings
    identity: ModelIdentity
    files: Mapping[str, Path]

    def load(self) -> Embedder:
        """The embedder, loaded once per process."""
        from pyspark import SparkFiles, TaskContext

        # The model must not use the cores of other tasks on this executor.
        running = TaskContext.get()
        os.environ.setdefault("LAKEWAKE_THREADS", str(running.cpus() if running else 1))
        root = Path(SparkFiles.getRootDirectory()) if self.files else Path()
        files = {name: root / sent for name, sent in self.files.items()}
        return sent_embedder(self.settings, files, self.identity)


@dataclass(frozen=True)
class ToVectors:
    """Makes vectors of questions, on an executor. Questions without a direction are left out."""

    metric: str
    dimension: int
    load: Callable[[], Embedder] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Questions as `Asked.taken` gives them → their ids, vectors and carried columns."""
        embedder = self.load() if self.load else None
        # Of this attempt only. If Spark makes the questions twice, in another order perhaps, the
        # results of both cannot be mixed up.
        attempt, made = uuid4().bytes, 0
        for batch in batches:
            given = batch[GIVEN]
            valid = batch.filter(present(given))
            if not valid.num_rows:
                continue
            vectors = (
                embedded(valid[GIVEN].to_pylist(), embedder)
                if embedder
                else as_vectors(valid[GIVEN], self.dimension)
            )
            kept = comparable(vectors, lengths(vectors), self.metric)
            ids = [attempt + (made + n).to_bytes(8, "big") for n in range(int(kept.sum()))]
            made += len(ids)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(ids, pa.binary()),
                    packed(vectors[kept]),
                    valid[CARRIED].filter(pa.array(kept)),
                ],
                [QUESTION, VECTOR, CARRIED],
            )


def present(given: pa.Array) -> pa.Array:
    """Which questions are not null and, if they are texts, not blank."""
    if pa.types.is_string(given.type) or pa.types.is_large_string(given.type):
        blank = [text is None or not text.strip() for text in given.to_pylist()]
        return pc.invert(pa.array(blank, pa.bool_()))
    return given.is_valid()


def embedded(texts: Sequence[str], embedder: Embedder) -> np.ndarray:
    """A vector for each text; equal texts are embedded once."""
    distinct = list(dict.fromkeys(texts))
    at = {text: n for n, text in enumerate(distinct)}
    vectors: np.ndarray = np.asarray(for_questions(embedder).embed(distinct), np.float32)
    return vectors[[at[text] for text in texts]]


def as_vectors(given: pa.Array, dimension: int) -> np.ndarray:
    """A column of arrays as a matrix.

    Raises:
        ConfigError: one of them is not a list of this many finite numbers.
    """
    wanted = f"give {dimension} finite numbers for each question, or null"
    sizes = np.asarray(pc.list_value_length(given))
    if (sizes != dimension).any():
        other = int(sizes[sizes != dimension][0])
        raise ConfigError(
            f"a question has a vector of {other} numbers, the index has {dimension} dimensions",
            hint=wanted,
        )
    with np.errstate(over="ignore"):
        flat = _numbers(given.flatten()).astype(np.float32)
    if not np.isfinite(flat).all():
        raise ConfigError("a question's vector holds a number that is not finite", hint=wanted)
    matrix: np.ndarray = flat.reshape(-1, dimension)
    return matrix


def _numbers(flat: pa.Array) -> Any:
    """Null becomes NaN."""
    return pc.fill_null(flat.cast(pa.float64(), safe=False), float("nan")).to_numpy()


def packed(vectors: np.ndarray) -> pa.Array:
    """Vectors as bytes, which Spark passes on without looking at each number."""
    width = vectors.shape[1] * 4
    content = pa.py_buffer(np.ascontiguousarray(vectors, "<f4").tobytes())
    offsets = pa.array(np.arange(len(vectors) + 1, dtype=np.int32) * width)
    return pa.Array.from_buffers(pa.binary(), len(vectors), [None, offsets.buffers()[1], content])


def unpacked(column: pa.Array, dimension: int) -> np.ndarray:
    """The inverse of `packed`."""
    values = column.to_pylist()
    return np.frombuffer(b"".join(values), "<f4").reshape(len(values), dimension)
