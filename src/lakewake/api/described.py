"""What is reported of an index as a whole: what it records about itself, what a drop removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lakewake.config.settings import IndexSettings
from lakewake.embed.cache import FILE as CACHE_FILE
from lakewake.model.drop import Dropped, DropReport
from lakewake.model.report import IndexDescription
from lakewake.store.address import address_of

if TYPE_CHECKING:
    from lakewake.store import StoreReader


def drop_report(
    settings: IndexSettings, others: Sequence[IndexSettings], found: Dropped, *, dry_run: bool
) -> DropReport:
    """What a drop removed, and what stays of the index: the vectors in the vector cache."""
    kept = settings.embedding_store
    cache = Path(kept.folder) / CACHE_FILE if kept else None
    shared = [o.name for o in others if (o.embedding_store, o.model) == (kept, settings.model)]
    return DropReport(
        index=settings.name,
        store=settings.store,
        removed=found.removed,
        marks=found.marks,
        # The vector cache may be in the same folder.
        foreign=tuple(f for f in found.foreign if not Path(f).name.startswith(CACHE_FILE)),
        vector_cache=str(cache) if cache and cache.exists() else "",
        shared_with=tuple(shared) if kept else (),
        dry_run=dry_run,
    )


def described(settings: IndexSettings, reader: StoreReader | None) -> IndexDescription:
    """What a version of an index records about itself."""
    if reader is None:
        return IndexDescription(settings.name, settings.store, settings.table)
    frontier, (rows, chunks) = reader.frontier(), reader.counts()
    return IndexDescription(
        index=settings.name,
        store=settings.store,
        table=frontier.location or settings.table,
        table_name=frontier.table.name,
        built=True,
        rows=rows,
        chunks=chunks,
        generation=reader.generation,
        instant=frontier.newest,
        address=address_of(settings.store, settings.stored_name),
        recipe=reader.recipe().as_dict(),
        date=frontier.date,
        limit=frontier.limit,
    )
