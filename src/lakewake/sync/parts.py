"""The wiring of one index."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakewake.config.settings import MAX_DELETE, ModelSettings
from lakewake.embed import Embedder
from lakewake.embed.cache import VectorCache
from lakewake.model.recipe import Recipe
from lakewake.progress import Reporter, Silent
from lakewake.source import Table
from lakewake.store import Store


@dataclass(frozen=True)
class IndexParts:
    """One index: its table, its store, and what makes vectors for it.

    Attributes:
        model: the settings of `embedder`, so that executors can load it too; None: they cannot.
        max_delete: the share of the index's rows that a sync may remove without being asked to.
    """

    name: str
    table: Table
    store: Store
    recipe: Recipe
    embedder: Embedder
    vector_cache: VectorCache
    reporter: Reporter = field(default_factory=Silent)
    model: ModelSettings | None = None
    max_delete: float = MAX_DELETE
