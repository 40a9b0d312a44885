"""Puts the parts of an index together from its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from lakewake.config.settings import IndexSettings
from lakewake.embed import Embedder
from lakewake.embed.cache import open_vector_cache
from lakewake.errors import StoreError, StoreUnreachable
from lakewake.model.recipe import RENDERING, Recipe, TextField
from lakewake.progress import Reporter, Silent
from lakewake.source.hudi import HudiTable
from lakewake.store import Store
from lakewake.store.executors import Executors
from lakewake.store.options import StoreOptions
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
    """The parts of an index. Only the index is looked at, and no session is started.

    Raises:
        StoreUnreachable: it does not answer.
    """
    store = open_store(
        settings.store, settings.stored_name, store_options(settings, session, reporter)
    )
    recipe = Recipe(
        model=embedder.identity,
        fields=settings.fields,
        vector=settings.vector,
        payload=settings.payload,
        chunking=settings.chunking,
        metric=settings.metric,
        where=settings.where,
    )
    if settings.fields:
        recipe = replace(recipe, rendering=rendering_for(settings.fields, store))
    return IndexParts(
        name=settings.name,
        table=HudiTable(settings.table, recipe, session, reporter=reporter),
        store=store,
        recipe=recipe,
        embedder=embedder,
        vector_cache=open_vector_cache(settings, embedder.identity, reporter.say),
        reporter=reporter,
        model=settings.model,
        max_delete=settings.max_delete,
    )


def rendering_for(fields: tuple[TextField, ...], store: Store) -> int:
    """How templates are filled in: an index with the same ones keeps its way.

    Raises:
        StoreUnreachable: the index does not answer.
    """
    try:
        built_by = index.recipe() if (index := store.open()) else None
    except StoreUnreachable:
        raise
    except StoreError:
        # It is damaged: a rebuild needs nothing of it.
        return RENDERING
    return built_by.rendering if built_by and built_by.fields == fields else RENDERING


def store_options(
    settings: IndexSettings,
    session: Callable[[], SparkSession] | None = None,
    reporter: Reporter | None = None,
) -> StoreOptions:
    """What the settings of an index set for its store.

    Args:
        session: the Spark session; without it the store can be read, but not every store written.
        reporter: shows the steps of upkeep.
    """
    options = StoreOptions(settings.recall, settings.ann, settings.keep)
    if session is None:
        return options
    shown = reporter or Silent()
    return replace(
        options,
        session=lambda: _equipped(session),
        executors=lambda: _executors(session, shown),
        reporter=shown,
    )


def _executors(session: Callable[[], SparkSession], reporter: Reporter) -> Executors | None:
    """The executors of a cluster; None in local mode."""
    from lakewake.spark.tasks import SparkExecutors

    return SparkExecutors.of(session(), reporter)


def _equipped(session: Callable[[], SparkSession]) -> SparkSession:
    """The session, with our package on its executors: a store may write with them."""
    from lakewake.spark.executors import equip

    spark = session()
    equip(spark)
    return spark
