"""Chooses the version of a row that counts, if files hold several."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from lakewake.model.rows import RowId
from lakewake.source.columns import HASHES, ID, INSTANT, SEQNO, VERSION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What `changed` compares: the versions of rows, or what a recipe makes of them.
BY_VERSION = {"changed": VERSION}
BY_CONTENT = {"changed": HASHES}


def changed(
    old: DataFrame, new: DataFrame, compared: Mapping[str, Sequence[str]] = BY_VERSION
) -> DataFrame:
    """The newest version of each row that has changed, appeared or disappeared.

    Adds the columns `gone` (not in `new`), `fresh` (not in `old`), `former` (the instant of the old
    version) and `copies` (how many there are in `new`).

    Args:
        compared: a row has changed if any of these columns has. If there are several groups, a
            column is added for each, under its name: whether a column of the group has changed.

    Grouping costs one shuffle and counts copies as well; a join costs two, and a window more.
    """
    from pyspark.sql import functions as F  # noqa: N812

    wanted = dict.fromkeys((*VERSION, *chain.from_iterable(compared.values())))
    now = new.select(*ID, F.struct(*new.columns).alias("now"))
    was = old.select(*ID, F.struct(*wanted).alias("was"))
    both = now.unionByName(was, allowMissingColumns=True)
    # Structs are ordered by their first fields. Whole rows may hold types that have no order.
    newest = F.max_by("now", F.struct(*(f"now.{c}" for c in VERSION)))
    copied = F.col("copies") != F.col("copied")
    differs = {name: copied | ~_same(group) for name, group in compared.items()}
    return (
        both.groupBy(*ID)
        .agg(
            newest.alias("now"),
            F.max("was").alias("was"),
            F.count("now").alias("copies"),
            F.count("was").alias("copied"),
        )
        .where(reduce(operator.or_, differs.values()))
        .select(
            *ID,
            *(f"now.{c}" for c in new.columns if c not in ID),
            F.col("now").isNull().alias("gone"),
            F.col("was").isNull().alias("fresh"),
            F.col(f"was.{INSTANT}").alias("former"),
            "copies",
            *(d.alias(name) for name, d in differs.items() if len(differs) > 1),
        )
    )


def _same(compared: Sequence[str]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    same = [F.col(f"now.{c}").eqNullSafe(F.col(f"was.{c}")) for c in compared]
    return reduce(operator.and_, same)


def one_each(rows: DataFrame) -> DataFrame:
    """The newest version of each row id."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    newest = Window.partitionBy(*ID).orderBy(F.desc(INSTANT), F.desc(SEQNO))
    return rows.withColumn("n", F.row_number().over(newest)).where("n = 1").drop("n")


class Newest(NamedTuple):
    """The newest version of each row.

    Attributes:
        rows: each id once.
        duplicates: the ids that occurred more than once.
        total: the number of ids.
        size: the approximate bytes of the rows; 0 if no weight was given.
    """

    rows: DataFrame
    duplicates: frozenset[RowId]
    total: int
    size: int


def newest(rows: DataFrame, weight: str = "0L") -> Newest:
    """The newest version of each row; `weight` is an expression for a row's bytes."""
    from pyspark.sql import functions as F  # noqa: N812

    counted = rows.groupBy(*ID).agg(
        F.count("*").alias("count"), F.max(F.expr(weight)).alias("size")
    )
    twice = F.collect_list(F.when(F.col("count") > 1, F.struct(*ID)))
    found = counted.agg(twice, F.count("*"), F.sum("size")).first()
    assert found is not None
    duplicates = frozenset(RowId(*r) for r in found[0])
    return Newest(one_each(rows) if duplicates else rows, duplicates, found[1], found[2] or 0)


class Amounts(NamedTuple):
    """Totals over the rows of `changed`: ids stored twice, number of rows gone, bytes."""

    duplicates: frozenset[RowId]
    gone: int
    size: int


def amounts(rows: DataFrame, weight: str) -> Amounts:
    """What has to be known before the rows are streamed, in one job."""
    from pyspark.sql import functions as F  # noqa: N812

    counted = rows.groupBy(*ID).agg(
        F.sum("copies").alias("copies"),
        F.max(F.col("gone").cast("int")).alias("gone"),
        F.max(F.expr(weight)).alias("size"),
    )
    twice = F.collect_list(F.when(F.col("copies") > 1, F.struct(*ID)))
    found = counted.agg(twice, F.sum("gone"), F.sum("size")).first()
    assert found is not None
    duplicates = frozenset(RowId(*r) for r in found[0])
    return Amounts(duplicates, found[1] or 0, found[2] or 0)
