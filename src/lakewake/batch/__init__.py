"""Searches from Spark: many questions at once, ranges, and the index as a DataFrame.

All of them are lazy: executors read the version that was the newest when the DataFrame was made.
Nothing the size of the questions or of the index passes through the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakewake.batch.asked import Ask, answered
from lakewake.batch.blocks import Comparing, grouped, part_size
from lakewake.batch.fetch import fetched, with_rows
from lakewake.batch.join import nearest_hits
from lakewake.batch.questions import (
    CARRIED,
    QUESTION,
    VECTOR,
    Asked,
    SentModel,
    ToVectors,
    check_questions,
    check_session,
)
from lakewake.batch.ranges import Read, Within, chunks_of, rows_within
from lakewake.batch.rows import Pinned, payload_names, result_columns
from lakewake.config.settings import ModelSettings
from lakewake.embed import for_questions
from lakewake.embed.registry import model_files
from lakewake.errors import ConfigError
from lakewake.model.query import Mode, Question
from lakewake.search.run import (
    PLAIN,
    Ranking,
    check_model,
    check_question,
    check_vector,
    least_score,
)
from lakewake.search.where import check_columns
from lakewake.source import arrow
from lakewake.spark import executors
from lakewake.store.filters import fitted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakewake.embed import Embedder
    from lakewake.model.where import Where
    from lakewake.store import StoreReader

#: What `to_dataframe` shows besides the payload, and what else it can show.
SHOWN = ("_key", "_partition", "_field", "_chunk", "_text", "_vector")
ALSO = ("_id", "_hash")


@dataclass(frozen=True)
class BatchParts:
    """One version of an index, and what it is searched with.

    Attributes:
        model: the settings of `embedder`, so that executors can load it too.
        ranking: how hits are ranked further, without a re-ranking model.
    """

    index: str
    reader: StoreReader
    embedder: Embedder
    model: ModelSettings
    ranking: Ranking = PLAIN

    @property
    def instant(self) -> str:
        """The newest table commit that this version holds."""
        return self.reader.frontier().newest

    @property
    def pin(self) -> Pinned:
        """Keeps the version while a task reads it."""
        return Pinned(self.reader, self.index)

    def comparing(self, where: Where | None) -> Comparing:
        """How chunks are compared with a question."""
        recipe, schema = self.reader.recipe(), self.reader.schema()
        if where is not None:
            check_columns(where, schema)
            where = fitted(where, schema)
        return Comparing(recipe.metric, recipe.model.dimension, where, self.ranking.weights)


@dataclass(frozen=True)
class BatchOptions:
    """What a caller may ask for: the arguments of `Index.search_batch`."""

    k: int = 10
    text: str | None = None
    vector: str | None = None
    where: str | Mapping[str, Any] | None = None
    mode: Mode = Mode.VECTOR
    exact: bool = False


def search_batch(parts: BatchParts, queries: DataFrame, options: BatchOptions) -> DataFrame:
    """The `k` nearest rows of each question.

    Raises:
        ConfigError: the questions or the options are not valid; FilterError if the filter is not.
        RecipeMismatch: the index was not built with the model that embeds the texts.
        SetupError: executors lack what they need, or the session is one of Spark Connect.
    """
    check_session(queries)
    payload = payload_names(parts.reader.schema())
    asked = check_questions(queries, options.text, options.vector, result_columns(payload))
    question = _question(parts, asked, options)
    how = parts.comparing(check_question(_example(question, asked)))
    spark = queries.sparkSession
    executors.equip(spark)
    embeds = asked.is_text and question.mode is not Mode.KEYWORD
    load = _sent(spark, parts).load if embeds else None
    taken = asked.taken(queries)
    if question.mode is not Mode.VECTOR or parts.reader.is_service:
        ask = Ask(parts.reader, parts.pin, question, asked.is_text, parts.ranking, load)
        found = answered(taken, ask)
    else:
        found = _joined(parts, _prepared(taken, how, load), options.k, how, payload)
    return found.select(*asked.shown(), *(f"`{name}`" for name in result_columns(payload)))


def _question(parts: BatchParts, asked: Asked, options: BatchOptions) -> Question:
    """What all questions share."""
    if not asked.is_text and options.mode is not Mode.VECTOR:
        raise ConfigError(
            f"mode {options.mode.value} searches by words and needs texts",
            hint="pass text= instead of vector=, or search with mode vector",
        )
    if options.mode is not Mode.VECTOR and not parts.reader.recipe().fields:
        raise ConfigError(
            f"index '{parts.index}' holds vectors from a table column, and no text to search for "
            "words",
            hint="search it with mode vector",
        )
    return Question(
        parts.index, k=options.k, where=options.where, exact=options.exact, mode=options.mode
    )


def _example(question: Question, asked: Asked) -> Question:
    """A question like those of the DataFrame, to check what all of them share."""
    return replace(question, text="text") if asked.is_text else replace(question, vector=(1.0,))


def _sent(spark: SparkSession, parts: BatchParts) -> SentModel:
    """The model, with its files sent to the executors."""
    identity = parts.embedder.identity
    check_model(parts.index, parts.reader.recipe().model, identity)
    if parts.model.provider == "column":
        raise ConfigError(
            f"index '{parts.index}' holds vectors from a table column and has no model for texts",
            hint="pass vector= with a column of vectors",
        )
    files = model_files(parts.model)
    sent = executors.send(spark, files.values())
    return SentModel(parts.model, identity, {name: sent[path] for name, path in files.items()})


def _prepared(taken: DataFrame, how: Comparing, load: Any) -> DataFrame:
    """The questions as vectors."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    if load:
        # All cores embed: the questions may be in one partition.
        taken = taken.repartition(int(taken.sparkSession.sparkContext.defaultParallelism))
    fields = [StructField(QUESTION, BinaryType()), StructField(VECTOR, BinaryType())]
    shape = StructType([*fields, StructField(CARRIED, taken.schema[CARRIED].dataType)])
    return arrow.mapped(taken, ToVectors(how.metric, how.dimension, load), shape)


def _joined(
    parts: BatchParts, questions: DataFrame, k: int, how: Comparing, payload: list[str]
) -> DataFrame:
    size = _group_size(parts, questions.sparkSession)
    compared = parts.reader.scan_parts(how.columns, size)
    hits = nearest_hits(questions, grouped(compared, size), k, how, parts.pin)
    rows = parts.reader.scan_parts(fetched(payload), size)
    return with_rows(hits, rows, parts.instant, parts.pin)


def _group_size(parts: BatchParts, spark: SparkSession) -> int:
    """How many chunks a task reads."""
    chunks = parts.reader.scan_parts(["_id"]).chunks
    dimension = parts.reader.recipe().model.dimension
    return part_size(chunks, dimension, int(spark.sparkContext.defaultParallelism))


def within(
    parts: BatchParts,
    spark: SparkSession,
    question: str | Sequence[float],
    distance: float,
    where: str | Mapping[str, Any] | None,
) -> DataFrame:
    """All rows within a distance of a question, nearest first.

    Raises:
        ConfigError: the question or the distance is not valid; FilterError if the filter is not.
        RecipeMismatch: the index was not built with the model that embeds the text.
    """
    least = least_score(parts.reader.recipe().metric, distance)
    recipe, payload = parts.reader.recipe(), payload_names(parts.reader.schema())
    if isinstance(question, str):
        how = parts.comparing(check_question(Question(parts.index, question, where=where)))
        check_model(parts.index, recipe.model, parts.embedder.identity)
        question = for_questions(parts.embedder).embed([question])[0]
    else:
        how = parts.comparing(check_question(Question(parts.index, vector=question, where=where)))
    vector = check_vector(question, recipe.model.dimension)
    executors.equip(spark)
    size = _group_size(parts, spark)
    columns = dict.fromkeys([*fetched(payload), *how.columns])
    read = parts.reader.scan_parts(list(columns), size)
    floats = tuple(vector.tolist())
    groups = grouped(read, size)
    find = Within(groups, read.schema, how, floats, least, parts.instant, parts.pin)
    return rows_within(spark, find, payload)


def to_dataframe(
    parts: BatchParts, spark: SparkSession, columns: Sequence[str] | None
) -> DataFrame:
    """The chunks of the index.

    Raises:
        ConfigError: it has no such column.
    """
    payload = payload_names(parts.reader.schema())
    chosen = [*SHOWN, *payload] if columns is None else list(dict.fromkeys(columns))
    chosen = [name for name in chosen if name != "_instant"]
    known = [*SHOWN, *ALSO, *payload]
    if unknown := [name for name in chosen if name not in known]:
        raise ConfigError(
            f"index '{parts.index}' has no column {unknown[0]!r}",
            hint=f"pass some of its columns: {', '.join(known)}",
        )
    executors.equip(spark)
    size = _group_size(parts, spark)
    # The id is read too: a part needs at least one column.
    read = parts.reader.scan_parts(list(dict.fromkeys(["_id", *chosen])), size)
    schema = pa.schema([read.schema.field(name) for name in chosen])
    return chunks_of(spark, Read(grouped(read, size), schema, parts.instant, parts.pin))
