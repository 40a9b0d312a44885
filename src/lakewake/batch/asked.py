"""Asks the index each question on its own, on executors.

For searches by words, and for a store that is a service: it answers, rather than being read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from lakewake.batch.nearest import comparable, lengths
from lakewake.batch.questions import CARRIED, GIVEN, as_vectors, embedded, present
from lakewake.batch.rows import Pinned, payload_names, result_columns, spark_schema
from lakewake.model.query import Hit, Mode, Query, Question
from lakewake.model.recipe import ModelIdentity
from lakewake.search.run import Ranking, check_question, search
from lakewake.source import arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakewake.embed import Embedder
    from lakewake.store import BatchReader, StoreReader


def answered(questions: DataFrame, ask: Ask) -> DataFrame:
    """The result of each question, with the carried columns as one."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    # All cores: the questions may be in one partition.
    spread = questions.repartition(int(questions.sparkSession.sparkContext.defaultParallelism))
    columns = from_arrow_schema(ask.shape, True)
    carried = StructField(CARRIED, questions.schema[CARRIED].dataType)
    return arrow.mapped(spread, ask, StructType([carried, *columns.fields]))


@dataclass(frozen=True)
class Ask:
    """Searches for each question of a batch, on an executor.

    Attributes:
        question: what all questions share.
        is_text: whether the questions are texts; otherwise vectors.
        load: makes the embedder, if texts have to be embedded.
    """

    reader: StoreReader
    pin: Pinned
    question: Question
    is_text: bool
    ranking: Ranking
    load: Callable[[], Embedder] | None

    @property
    def shape(self) -> pa.Schema:
        """The columns of a result, without the carried ones."""
        held = self.reader.schema()
        types = {
            "_rank": pa.int32(),
            "_score": pa.float64(),
            **dict.fromkeys(("_key", "_partition", "_text", "_instant"), pa.string()),
            **{name: held.field(name).type for name in payload_names(held)},
        }
        names = result_columns(payload_names(held))
        return spark_schema(pa.schema([(name, types[name]) for name in names]))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Questions → rows of the result."""
        embedder = self.load() if self.load else None
        with self.pin():
            for batch in batches:
                valid = batch.filter(present(batch[GIVEN]))
                if valid.num_rows:
                    yield self._answers(valid, embedder)

    def _answers(self, batch: pa.RecordBatch, embedder: Embedder | None) -> pa.RecordBatch:
        given = self._given(batch[GIVEN])
        known = Embedded.of(given, embedder) if embedder else Embedded(self._identity, {})
        reader = self._prefetched(given, known)
        rows = [
            (n, rank, hit)
            for n, one in enumerate(given)
            for rank, hit in enumerate(self._hits(reader, one, known), start=1)
        ]
        carried = batch[CARRIED].take(pa.array([n for n, _, _ in rows], pa.int64()))
        columns = [self._column(field, rows) for field in self.shape]
        return pa.RecordBatch.from_arrays([carried, *columns], [CARRIED, *self.shape.names])

    def _given(self, given: pa.Array) -> list[Any]:
        if self.is_text:
            return list(given.to_pylist())
        return list(as_vectors(given, self._identity.dimension))

    def _prefetched(self, given: list[Any], known: Embedded) -> StoreReader:
        """The reader, which knows what its searches will find if it can search for all at once."""
        several = len(set(self.ranking.weights.values()) | {1.0}) > 1
        if not self.reader.is_service or several or self.question.mode is not Mode.VECTOR:
            return self.reader
        where = check_question(replace(self.question, text="text"))
        vectors = [known.vectors[one] if self.is_text else one for one in given]
        # One row more than is wanted: a search asks for it to know whether there are more.
        limit, exact = self.question.k + 1, self.question.exact
        queries = [Query(v, limit, where, exact) for v in vectors if self._has_direction(v)]
        found = cast("BatchReader", self.reader).search_many(queries)
        by_vector = {q.vector.tobytes(): t for q, t in zip(queries, found, strict=True)}
        return cast("StoreReader", Prefetched(self.reader, limit, by_vector))

    def _has_direction(self, vector: np.ndarray) -> bool:
        one = vector[None]
        return bool(comparable(one, lengths(one), self.reader.recipe().metric)[0])

    def _hits(self, reader: StoreReader, given: Any, known: Embedded) -> Sequence[Hit]:
        if self.is_text:
            asked = replace(self.question, text=given)
        else:
            if not self._has_direction(given):
                return ()
            asked = replace(self.question, vector=given)
        return search(reader, known, asked, self.ranking).hits

    @property
    def _identity(self) -> ModelIdentity:
        return self.reader.recipe().model

    def _column(self, field: pa.Field, rows: Sequence[tuple[int, int, Hit]]) -> pa.Array:
        own: dict[str, Callable[[int, Hit], Any]] = {
            "_rank": lambda rank, _: rank,
            "_key": lambda _, hit: hit.key,
            "_partition": lambda _, hit: hit.partition,
            "_score": lambda _, hit: hit.score,
            "_text": lambda _, hit: hit.text,
            "_instant": lambda *_: self._instant,
        }
        if field.name not in own:
            return pa.array([hit.payload[field.name] for _, _, hit in rows], field.type)
        value = own[field.name]
        return pa.array([value(rank, hit) for _, rank, hit in rows], field.type)

    @property
    def _instant(self) -> str:
        return self.reader.frontier().newest


@dataclass(frozen=True)
class Prefetched:
    """A reader that knows what some searches find; everything else is read as usual.

    Attributes:
        limit: how many rows these searches ask for.
        found: the bytes of a vector → what its search finds.
    """

    reader: StoreReader
    limit: int
    found: Mapping[bytes, pa.Table]

    def search(self, query: Query) -> pa.Table:
        known = self.found.get(query.vector.tobytes()) if query.limit == self.limit else None
        return self.reader.search(query) if known is None else known

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reader, name)


@dataclass(frozen=True)
class Embedded:
    """An embedder that knows its texts already: those of a batch are embedded together."""

    identity: ModelIdentity
    vectors: Mapping[str, np.ndarray]
    tokenizer: str | None = None

    @classmethod
    def of(cls, texts: Sequence[str], embedder: Embedder) -> Embedded:
        """Embed these texts."""
        vectors = embedded(texts, embedder)
        return cls(embedder.identity, dict(zip(texts, vectors, strict=True)))

    def load(self) -> None:
        pass

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        out: np.ndarray = np.stack([self.vectors[text] for text in texts])
        return out
