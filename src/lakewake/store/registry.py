"""Store addresses: `lance://folder`, `hudi://folder`, the same with `+s3`, and `qdrant://…`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lakewake.errors import ConfigError, SetupError
from lakewake.model.keep import Keep
from lakewake.model.recall import RECALL
from lakewake.net.address import check_address
from lakewake.store import Store
from lakewake.store.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session = Callable[[], SparkSession]
    Open = Callable[[str, str, float, Session, Keep], Store]

_in_this_process: dict[tuple[str, str], MemoryStore] = {}


def _local_lance(folder: str, name: str, recall: float) -> Store:
    if "://" in folder:
        raise ConfigError(
            f"store 'lance://{folder}' is not on a local file system",
            hint="write it as lance+s3://bucket/folder",
        )
    return _lance(folder, name, recall)


def _lance(folder: str, name: str, recall: float) -> Store:
    # Imported here because Lance takes half a second to load.
    from lakewake.store.lance.store import LanceStore

    return LanceStore(folder, name, recall=recall)


def _lance_s3(folder: str, name: str, recall: float) -> Store:
    return _lance(f"s3://{folder}", name, recall)


def _memory(location: str, name: str, recall: float) -> Store:
    return _in_this_process.setdefault((location, name), MemoryStore())


def _qdrant(scheme: str, location: str, name: str, recall: float) -> Store:
    from lakewake.store.qdrant.location import local_folder, server

    if scheme == "qdrant+local":
        folder, collection = local_folder(location, name)
        return _in_qdrant()(folder, name, collection, recall=recall)
    address, collection = server(scheme, location, name)
    return _in_qdrant()(address, name, collection, recall=recall)


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


def _local_lake(folder: str, name: str, recall: float, session: Session, keep: Keep) -> Store:
    if "://" in folder:
        raise ConfigError(
            f"store 'hudi://{folder}' is not on a local file system",
            hint="write it as hudi+s3://bucket/folder",
        )
    return _lake(folder, name, recall, session, keep)


def _lake_s3(folder: str, name: str, recall: float, session: Session, keep: Keep) -> Store:
    return _lake(f"s3://{folder}", name, recall, session, keep)


def _lake(folder: str, name: str, recall: float, session: Session, keep: Keep) -> Store:
    try:
        from lakewake.store.hudi.store import HudiStore
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "hudi":
            raise
        raise SetupError(
            "the Hudi reader is not installed", hint="pip install 'lakewake[lake]'"
        ) from error
    return HudiStore(folder, name, session, recall=recall, keep=keep)


def _no_session() -> SparkSession:
    raise SetupError(
        "this index can be read here, but not written", hint="sync it with its configuration"
    )


def _without_session(open: Callable[[str, str, float], Store]) -> Open:
    """The same for stores that are written without Spark."""
    return lambda location, name, recall, session, keep: open(location, name, recall)


STORES: dict[str, Open] = {
    "lance": _without_session(_local_lance),
    "lance+s3": _without_session(_lance_s3),
    "hudi": _local_lake,
    "hudi+s3": _lake_s3,
    "memory": _without_session(_memory),
    **{
        scheme: _without_session(partial(_qdrant, scheme))
        for scheme in ("qdrant", "qdrants", "qdrant+https", "qdrant+local")
    },
}


def open_store(
    url: str,
    name: str,
    recall: float = RECALL,
    session: Session = _no_session,
    keep: Keep | None = None,
) -> Store:
    """The store at an address, for the index with this name.

    Args:
        recall: the share of the nearest chunks that a vector search has to find; 1 means exact.
        session: the Spark session that writes an index in the lake; called when it is needed.
        keep: how long an index in the lake can be searched as it was.

    Raises:
        ConfigError: the scheme is unknown, or the address contains a key.
    """
    check_address(url, "the store")
    scheme, separator, location = url.partition("://")
    if not separator or scheme not in STORES:
        raise ConfigError(
            f"store '{url}' does not begin with a known scheme",
            hint="use one of " + ", ".join(f"{s}://…" for s in sorted(STORES)),
        )
    if not location:
        raise ConfigError(f"store '{url}' has no location", hint=f"add one, as in {scheme}://index")
    return STORES[scheme](location, name, recall, session, keep or Keep())
