"""What can be asked of an index from Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakewake.model.choices import one_of
from lakewake.model.query import Mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakewake.batch import BatchParts


class Frames:
    """Searches whose questions or answers are DataFrames of Spark.

    They are lazy. When they are evaluated, executors read the version of the index that was the
    newest when the method was called. Upkeep keeps that version for at least ten minutes, and
    while a task reads it. If it is gone, the evaluation fails; it never shows fewer rows.
    """

    def _batch_parts(self) -> BatchParts:
        raise NotImplementedError

    def _spark(self) -> SparkSession:
        raise NotImplementedError

    def search_batch(
        self,
        queries: DataFrame,
        *,
        k: int = 10,
        text: str | None = None,
        vector: str | None = None,
        where: str | Mapping[str, Any] | None = None,
        mode: str = "vector",
        exact: bool = False,
    ) -> DataFrame:
        """The `k` nearest rows of each question in a DataFrame. Executors do the work.

        The result has the columns of `queries` (except that of vectors), then `_rank` (from 1),
        `_key`, `_partition`, `_score`, `_text`, `_instant` (of the table) and the payload, in any
        order of rows. A question that is null, blank or a vector of zeros has no rows.

        Args:
            text: the column of `queries` with texts.
            vector: or the column with vectors, as arrays of numbers.
            where: a filter on payload columns, as in `search`.
            mode: `vector` compares with every vector of the index. `keyword` and `hybrid` search
                for each question on its own. There is no re-ranking.
            exact: in mode `hybrid`, and in a Qdrant server: do not use an approximate index.

        Raises:
            ConfigError: a column is missing, has the wrong type, or a name that the result has too.
            FilterError: the filter does not parse, or does more than compare columns with literals.
            IndexMissing: there is no index yet.
            RecipeMismatch: the index was not built with the model that embeds the texts.
            SetupError: executors lack what they need, or the session is one of Spark Connect.
        """
        from lakewake.batch import BatchOptions, search_batch

        options = BatchOptions(k, text, vector, where, one_of(Mode, "mode", mode), exact)
        return search_batch(self._batch_parts(), queries, options)

    def within(
        self,
        question: str | Sequence[float],
        distance: float,
        *,
        where: str | Mapping[str, Any] | None = None,
    ) -> DataFrame:
        """All rows within a distance of a text or a vector, nearest first.

        The distance is 1 - cosine: 0 for the same direction, 1 for unrelated, 2 for opposite. With
        another metric it is the negative dot product or the Euclidean distance. The result has the
        columns that `search_batch` adds; `_score` is that of a search. Weights of text fields do
        not count.

        Raises:
            ConfigError: the question or the distance is not valid; FilterError if the filter is
                not.
            IndexMissing: there is no index yet.
            RecipeMismatch: the index was not built with the model that embeds the text.
        """
        from lakewake.batch import within

        return within(self._batch_parts(), self._spark(), question, distance, where)

    def to_dataframe(self, columns: Sequence[str] | None = None) -> DataFrame:
        """The chunks of the index at one version.

        Args:
            columns: which of `_key`, `_partition`, `_field`, `_chunk`, `_text`, `_vector` and the
                payload; all by default. `_id` and `_hash` can be named too. The last column is
                always `_instant`, that of the table.

        Raises:
            ConfigError: the index has no such column.
            IndexMissing: there is no index yet.
        """
        from lakewake.batch import to_dataframe

        return to_dataframe(self._batch_parts(), self._spark(), columns)
