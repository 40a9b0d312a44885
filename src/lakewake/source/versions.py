"""Which version of a row counts, where files hold several."""

from __future__ import annotations

import operator
from functools import reduce
from typing import TYPE_CHECKING

from lakewake.model.rows import RowId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def changed(old: DataFrame, new: DataFrame, *, contents: bool) -> DataFrame:
    """The newest version of each row that differs from what it was, or is not there any more.

    With `gone` (not there now), `fresh` (not there before), the instant of its `former` version and
    how many `copies` there are.

    Grouping costs one shuffle, and finds copies by the way; a join costs two, and a window more.
    """
    from pyspark.sql import functions as F  # noqa: N812

    version = ["i", "s", *(("sh", "ph") if contents else ())]
    now = new.select("p", "k", F.struct(*new.columns).alias("now"))
    was = old.select("p", "k", F.struct(*version).alias("was"))
    both = now.unionByName(was, allowMissingColumns=True)
    # The order of a struct is that of its first fields; of the whole row not every type has one.
    newest = F.max_by("now", F.struct("now.i", "now.s"))
    compared = version[2:] or version
    same = [F.col(f"now.{c}").eqNullSafe(F.col(f"was.{c}")) for c in compared]
    return (
        both.groupBy("p", "k")
        .agg(
            newest.alias("now"),
            F.max("was").alias("was"),
            F.count("now").alias("copies"),
            F.count("was").alias("copied"),
        )
        .where(~reduce(operator.and_, same) | (F.col("copies") != F.col("copied")))
        .select(
            "p",
            "k",
            *(f"now.{c}" for c in new.columns if c not in ("p", "k")),
            F.col("now").isNull().alias("gone"),
            F.col("was").isNull().alias("fresh"),
            F.col("was.i").alias("former"),
            "copies",
        )
    )


def one_each(rows: DataFrame) -> DataFrame:
    """The newest version of each row id."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    newest = Window.partitionBy("p", "k").orderBy(F.desc("i"), F.desc("s"))
    return rows.withColumn("n", F.row_number().over(newest)).where("n = 1").drop("n")


def newest(rows: DataFrame) -> tuple[DataFrame, frozenset[RowId], int]:
    """The rows, each id once; the ids that were there more than once; how many rows that makes."""
    from pyspark.sql import functions as F  # noqa: N812

    twice = F.collect_list(F.when(F.col("count") > 1, F.struct("p", "k")))
    found = rows.groupBy("p", "k").count().agg(twice, F.count("*")).first()
    assert found is not None
    duplicates = frozenset(RowId(r["p"], r["k"]) for r in found[0])
    return (one_each(rows) if duplicates else rows), duplicates, found[1]
