"""Indexes that are opened by their address, without a configuration."""

from __future__ import annotations

from typing import Any, NoReturn

from lakewake.api.index import Index
from lakewake.config.settings import IndexSettings
from lakewake.embed.recorded import RecordedEmbedder, settings_of
from lakewake.errors import ConfigError, IndexMissing
from lakewake.model.frontier import Frontier
from lakewake.model.query import SearchResult
from lakewake.model.recall import RECALL, RECALL_IN_LAKE
from lakewake.model.recipe import Recipe
from lakewake.model.report import StatusReport
from lakewake.progress import Reporter, Silent
from lakewake.spark.sessions import Sessions
from lakewake.store import address as addresses
from lakewake.store.options import StoreOptions
from lakewake.store.registry import open_store


def open_index(address: str, *, reporter: Reporter | None = None) -> Index:
    """Open an index by its address alone, to search it.

    The index records its source table, recipe and model, so no configuration is needed. What only
    a configuration has (weights, re-ranking, the key of a service) does not apply; the index
    cannot be synced.

    Args:
        address: `lance://FOLDER/NAME`, `lance+s3://BUCKET/FOLDER/NAME` or `hudi://FOLDER`. The
            folder is enough if there is only one index in it.
        reporter: receives progress. By default, progress is not reported.

    Raises:
        ConfigError: several indexes are there, or the address is not of this kind.
        IndexMissing: there is no index.
        StoreError: the index cannot be read.
    """
    found = addresses.find_index(address)
    name = addresses.recorded_name(found)
    recall = RECALL_IN_LAKE if found.store.startswith("hudi") else RECALL
    reader = open_store(found.store, name, StoreOptions(recall)).open()
    if reader is None:
        raise IndexMissing(
            f"there is no index '{name}' in {found.store}",
            hint="sync it with its configuration: its build did not finish",
        )
    settings = settings_from(found.store, name, recall, reader.recipe(), reader.frontier())
    return AddressedIndex(settings, reporter or Silent(), reader.recipe())


def find_indexes(address: str) -> tuple[str, ...]:
    """The addresses of the indexes in a folder and three levels below it, for `open_index`.

    Args:
        address: a path, or the address of a store: `lance://…`, `lance+s3://…`, `hudi://…`.

    Raises:
        ConfigError: the address is not of this kind.
        StoreUnreachable: the folder cannot be listed.
    """
    return tuple(map(str, addresses.find_indexes(address)))


def settings_from(
    store: str, name: str, recall: float, recipe: Recipe, frontier: Frontier
) -> IndexSettings:
    """The settings of an index, as far as it records them."""
    return IndexSettings(
        name=name,
        table=frontier.location,
        store=store,
        fields=recipe.fields,
        vector=recipe.vector,
        payload=recipe.payload,
        chunking=recipe.chunking,
        model=settings_of(recipe.model),
        metric=recipe.metric,
        recall=recall,
    )


class AddressedIndex(Index):
    """An index without a configuration. It can be read, but not written."""

    def __init__(self, settings: IndexSettings, reporter: Reporter, recipe: Recipe) -> None:
        embedder = RecordedEmbedder(recipe.model)
        sessions = Sessions({}, None, False, reporter)
        super().__init__(settings, sessions, reporter, load=lambda model, column: embedder)

    def search(self, *given: Any, **named: Any) -> SearchResult:
        if named.get("max_age") is not None:
            self._check_table()
        return super().search(*given, **named)

    def status(self) -> StatusReport:
        self._check_table()
        return super().status()

    def _check_table(self) -> None:
        if not self.settings.table:
            raise ConfigError(
                f"index '{self.name}' does not record where its table is",
                hint="use its configuration; the next sync that commits something records it",
            )

    def plan(self, **_: bool) -> NoReturn:
        raise self._without_configuration("planned")

    def sync(self, **_: bool | int | None) -> NoReturn:
        raise self._without_configuration("synced")

    def heal(self, damage: Exception) -> NoReturn:
        raise self._without_configuration("rebuilt")

    def drop(self, **_: bool) -> NoReturn:
        raise self._without_configuration("dropped")

    def verify(self, **_: bool | str) -> NoReturn:
        raise self._without_configuration("verified")

    def _without_configuration(self, done: str) -> ConfigError:
        return ConfigError(
            f"index '{self.name}' was opened by its address, and cannot be {done} without its "
            "configuration",
            hint=f"use `lakewake.open(CONFIG)['{self.name}']`; `lakewake init TABLE` writes a "
            "configuration",
        )
