"""Puts the parts of an index together from its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lakewake.config.settings import IndexSettings
from lakewake.embed import Embedder
from lakewake.embed.cache import open_vector_cache
from lakewake.model.recipe import Recipe
from lakewake.progress import Reporter
from lakewake.source.hudi import HudiTable
from lakewake.store.registry import open_store
from lakewake.sync.parts import IndexParts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def wire(
    settings: IndexSettings,
    embedder: Embedder,
    session: Callable[[], SparkSession],
    reporter: Reporter,
) -> IndexParts:
    """The parts of an index. Nothing is read yet, and no session is started."""
    recipe = Recipe(
        model=embedder.identity,
        fields=settings.fields,
        vector=settings.vector,
        payload=settings.payload,
        chunking=settings.chunking,
        metric=settings.metric,
    )
    return IndexParts(
        name=settings.name,
        table=HudiTable(settings.table, recipe, session),
        store=open_store(
            settings.store,
            settings.name,
            settings.recall,
            lambda: _equipped(session),
            settings.keep,
        ),
        recipe=recipe,
        embedder=embedder,
        vector_cache=open_vector_cache(settings, embedder.identity, reporter.say),
        reporter=reporter,
        model=settings.model,
        max_delete=settings.max_delete,
    )


def _equipped(session: Callable[[], SparkSession]) -> SparkSession:
    """The session, with our package on its executors: a store may write with them."""
    from lakewake.spark.executors import equip

    spark = session()
    equip(spark)
    return spark
