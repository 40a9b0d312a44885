"""Store addresses: `lance://folder`, `hudi://folder`, `qdrant://…`, and those of plug-ins."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import TypedDict

from lakewake.errors import ConfigError, SetupError
from lakewake.extras import not_installed
from lakewake.net.address import check_address
from lakewake.store import Store
from lakewake.store.memory import MemoryStore
from lakewake.store.options import StoreOptions

#: Opens the store at a location, for the index with this name.
Factory = Callable[[str, str, StoreOptions], Store]
#: The entry points of stores that other packages bring: the scheme of an address → a `Factory`.
PLUG_INS = "lakewake.stores"


class Searching(TypedDict):
    """The arguments of every store of ours that are about vector search."""

    recall: float
    ann_min_chunks: int
    kind: str


_in_this_process: dict[tuple[str, str], MemoryStore] = {}


def _local_lance(folder: str, name: str, options: StoreOptions) -> Store:
    if "://" in folder:
        raise ConfigError(
            f"store 'lance://{folder}' is not on a local file system",
            hint="write it as lance+s3://bucket/folder",
        )
    return _lance(folder, name, options)


def _lance(folder: str, name: str, options: StoreOptions) -> Store:
    # Imported here because Lance takes half a second to load.
    from lakewake.store.lance.kinds import KINDS
    from lakewake.store.lance.store import LanceStore

    options.need_kind("Lance", *KINDS)
    return LanceStore(
        folder,
        name,
        executors=options.executors,
        reporter=options.reporter,
        **_searching(options),
    )


def _searching(options: StoreOptions) -> Searching:
    """The arguments of a store that are about vector search."""
    ann = options.ann
    return {"recall": options.recall, "ann_min_chunks": ann.least, "kind": ann.kind}


def _lance_s3(folder: str, name: str, options: StoreOptions) -> Store:
    return _lance(f"s3://{folder}", name, options)


def _memory(location: str, name: str, options: StoreOptions) -> Store:
    options.need_kind("a store in memory")
    return _in_this_process.setdefault((location, name), MemoryStore())


def _qdrant(scheme: str, location: str, name: str, options: StoreOptions) -> Store:
    from lakewake.store.qdrant.location import local_folder, server

    options.need_kind("Qdrant", "hnsw")
    if scheme == "qdrant+local":
        folder, collection = local_folder(location, name)
        return _in_qdrant()(folder, name, collection, **_searching(options))
    address, collection = server(scheme, location, name)
    return _in_qdrant()(address, name, collection, **_searching(options))


def _in_qdrant() -> Callable[..., Store]:
    try:
        from lakewake.store.qdrant.store import QdrantStore
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "qdrant_client":
            raise
        raise SetupError(
            "the Qdrant client is not installed", hint="pip install 'lakewake[qdrant]'"
        ) from error
    return QdrantStore


def _local_lake(folder: str, name: str, options: StoreOptions) -> Store:
    if "://" in folder:
        raise ConfigError(
            f"store 'hudi://{folder}' is not on a local file system",
            hint="write it as hudi+s3://bucket/folder",
        )
    return _lake(folder, name, options)


def _lake_s3(folder: str, name: str, options: StoreOptions) -> Store:
    return _lake(f"s3://{folder}", name, options)


def _lake(folder: str, name: str, options: StoreOptions) -> Store:
    options.need_kind("an index in the lake", "ivf_flat")
    try:
        from lakewake.store.hudi.store import HudiStore
    except ModuleNotFoundError as error:
        raise not_installed(error) or error from error
    return HudiStore(
        folder,
        name,
        options.session,
        keep=options.keep,
        reporter=options.reporter,
        **_searching(options),
    )


STORES: dict[str, Factory] = {
    "lance": _local_lance,
    "lance+s3": _lance_s3,
    "hudi": _local_lake,
    "hudi+s3": _lake_s3,
    "memory": _memory,
    **{
        scheme: partial(_qdrant, scheme)
        for scheme in ("qdrant", "qdrants", "qdrant+https", "qdrant+local")
    },
}


def open_store(url: str, name: str, options: StoreOptions | None = None) -> Store:
    """The store at an address, for the index with this name.

    Raises:
        ConfigError: the scheme is unknown, the address contains a key, or the store does not have
            what the options ask for.
        SetupError: the package that brings the store cannot be used.
    """
    check_address(url, "the store")
    scheme, separator, location = url.partition("://")
    factory = _factory(scheme) if separator else None
    if factory is None:
        known = sorted({*STORES, *_plug_ins()})
        raise ConfigError(
            f"store '{url}' does not begin with a known scheme",
            hint="use one of " + ", ".join(f"{s}://…" for s in known),
        )
    if not location:
        raise ConfigError(f"store '{url}' has no location", hint=f"add one, as in {scheme}://index")
    return factory(location, name, options or StoreOptions())


def _factory(scheme: str) -> Factory | None:
    """What opens stores with this scheme; None if nothing does."""
    if scheme in STORES:
        return STORES[scheme]
    found = _plug_ins().get(scheme)
    if found is None:
        return None
    try:
        factory: Factory = found.load()
    except Exception as error:
        # Whatever the package does while it is imported.
        package = found.dist.name if found.dist else found.value
        raise SetupError(
            f"the store '{scheme}://' of package {package} cannot be loaded: {error}",
            hint=f"install {package} again, or ask its authors",
        ) from error
    return factory


def _plug_ins() -> dict[str, EntryPoint]:
    """The stores of installed packages, by scheme."""
    return {found.name: found for found in entry_points(group=PLUG_INS)}
