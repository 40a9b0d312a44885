"""`[embedding_store]` of lakewake.toml: the vector cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from lakewake.config.index import DEFAULT_STORE, read_store
from lakewake.config.section import Section, kind_of, locate
from lakewake.config.settings import MAX_MB, EmbeddingStoreSettings
from lakewake.model.choices import LOCAL_STORES, REMOTE_STORES

EMBEDDING_STORE_KEYS = tuple(f.name for f in fields(EmbeddingStoreSettings))


def read_embedding_store(
    top: Section, indexes: Iterable[Section], folder: Path
) -> EmbeddingStoreSettings | None:
    """The vector cache that all indexes share: beside the first index, unless the file names one.

    It is always local. Every batch of texts asks it, and S3 would be too far away for that.
    """
    value = top.values.get("embedding_store", True)
    if value is False:
        return None
    value = {} if value is True else value
    if not isinstance(value, dict):
        raise top.fail(
            f"`embedding_store` is {kind_of(value)}, expected a table, true or false",
            "embedding_store = true",
        )
    section = Section(f"{top.where}: embedding_store", value)
    section.refuse_unknown(EMBEDDING_STORE_KEYS)
    max_mb = section.count("max_mb", MAX_MB, least=1)
    named: str | None = section.get("folder", str)
    if named:
        return EmbeddingStoreSettings(locate(folder, named), max_mb)
    stores = [read_store(s, folder).partition("://") for s in indexes]
    beside = next((path for scheme, _, path in stores if scheme in LOCAL_STORES), None)
    if beside is None and any(scheme in REMOTE_STORES for scheme, _, _ in stores):
        beside = locate(folder, DEFAULT_STORE.removeprefix("lance://"))
    return EmbeddingStoreSettings(beside, max_mb) if beside else None
