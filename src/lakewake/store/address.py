"""Addresses of indexes, which name one index by themselves, and the indexes below a folder.

    lance://lake/index/wines       index 'wines' in the folder lake/index
    lance+s3://bucket/index/wines
    hudi://lake/wines_index        an index in the lake has a folder of its own

The address of a folder is enough if there is only one index in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lakewake.errors import ConfigError, IndexMissing, StoreUnreachable
from lakewake.net.address import check_address
from lakewake.store.location import S3, Location, location_at
from lakewake.store.registry import STORES, open_store

#: How many levels of folders below the given one are looked into.
LEVELS = 3
#: The stores whose indexes describe themselves.
KINDS = ("lance", "hudi")
_LANCE = re.compile(r"(.+)\.g[1-9][0-9]*\.lance")
#: The marks of a dropped index: `lance.generations.DROPPED`, and in a claim of `hudi.generations`.
#: Written here again because the stores import their libraries.
DROPPED, DROP_CLAIM = "dropped.manifest", b'"dropped": true'
_CLAIM = re.compile(r"g[1-9][0-9]*\.json")


@dataclass(frozen=True, order=True)
class IndexAddress:
    """Where an index is.

    Attributes:
        store: the address of its store, as in a configuration.
        name: its name; '' if the index itself records it.
    """

    store: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.store}/{self.name}" if self.name else self.store


@dataclass(frozen=True)
class _Place:
    """An address that was taken apart; `kinds` are the stores to look for."""

    kinds: tuple[str, ...]
    location: str
    remote: bool

    def store(self, kind: str, folder: str = "") -> str:
        below = f"{self.location}/{folder}".rstrip("/")
        return f"{kind}{'+s3' if self.remote else ''}://{below}"

    def open(self) -> Location:
        return location_at(f"{S3}{self.location}" if self.remote else self.location)


def find_indexes(address: str) -> tuple[IndexAddress, ...]:
    """The indexes in a folder and three levels below it.

    Args:
        address: a path, or the address of a store.

    Raises:
        ConfigError: indexes at such an address do not describe themselves.
        StoreUnreachable: the folder cannot be listed.
    """
    return tuple(sorted(_listed(_parsed(address))))


def find_index(address: str) -> IndexAddress:
    """The one index that an address names.

    Raises:
        ConfigError: several indexes are there.
        IndexMissing: there is none.
    """
    place = _parsed(address)
    found = list(_listed(place, LEVELS)) or list(_by_name(place))
    if len(found) > 1:
        raise ConfigError(
            f"{address} holds {len(found)} indexes",
            hint=f"name one of them: {', '.join(map(str, sorted(found)))}",
        )
    if not found:
        raise IndexMissing(
            f"there is no index at {address}",
            hint="`lakewake list FOLDER` shows the addresses of the indexes below a folder",
        )
    return found[0]


def address_of(store: str, name: str) -> str:
    """The address that opens an index; '' if its store has none."""
    kind = store.partition("://")[0].partition("+")[0]
    if kind not in KINDS:
        return ""
    return str(IndexAddress(store, name if kind == "lance" else ""))


def recorded_name(address: IndexAddress) -> str:
    """The name of an index, from its address or from what it records.

    Raises:
        StoreError: the index cannot be read.
    """
    if address.name:
        return address.name
    from lakewake.store.hudi.store import HudiStore

    folder = address.store.rpartition("/")[2]
    store = open_store(address.store, folder)
    reader = store.unchecked() if isinstance(store, HudiStore) else None
    return reader.about.name if reader else folder


def _parsed(address: str) -> _Place:
    check_address(address, "the index")
    scheme, mark, location = address.partition("://")
    if not mark:
        return _Place(KINDS, _local(address), remote=False)
    kind, _, where = scheme.partition("+")
    if kind not in KINDS or scheme not in STORES:
        raise ConfigError(
            f"an index at {scheme}:// cannot be opened by its address",
            hint="open it with its configuration; "
            + ", ".join(f"{s}://…" for s in sorted(STORES) if s.partition("+")[0] in KINDS)
            + " work by their address",
        )
    if not location.strip("/"):
        raise ConfigError(f"{address} has no location", hint=f"add one, as in {scheme}://index")
    remote = where == "s3"
    return _Place((kind,), location.rstrip("/") if remote else _local(location), remote)


def _local(path: str) -> str:
    return os.path.normpath(Path(path).expanduser().absolute())


def _listed(place: _Place, levels: int = LEVELS) -> Iterator[IndexAddress]:
    try:
        yield from _below(place, place.open(), "", levels)
    except OSError as error:
        raise StoreUnreachable(
            f"{place.location} cannot be listed: {error}", hint="check the address, then try again"
        ) from error


def _below(place: _Place, location: Location, folder: str, levels: int) -> Iterator[IndexAddress]:
    names = location.names(folder)
    if "lance" in place.kinds:
        for name in sorted({m[1] for n in names if (m := _is_generation(location, folder, n))}):
            yield IndexAddress(place.store("lance", folder), name)
    if claims := [n for n in names if _CLAIM.fullmatch(n)]:
        if "hudi" in place.kinds and not _is_dropped(location, folder, claims):
            yield IndexAddress(place.store("hudi", folder))
        return
    # The folders of a table are its partitions: there may be thousands.
    if levels and ".hoodie" not in names:
        for name in sorted(n for n in names if _is_folder(n)):
            yield from _below(place, location, f"{folder}/{name}".lstrip("/"), levels - 1)


def _is_generation(location: Location, folder: str, name: str) -> re.Match[str] | None:
    """The match of a generation's name, unless the generation was dropped."""
    found = _LANCE.fullmatch(name)
    if found and DROPPED in location.names(f"{folder}/{name}/_versions".lstrip("/")):
        return None
    return found


def _is_dropped(location: Location, folder: str, claims: list[str]) -> bool:
    """Whether an index in the lake was dropped, by the newest of its claims."""
    newest = max(claims, key=lambda name: int(name[1 : -len(".json")]))
    return DROP_CLAIM in (location.read(f"{folder}/{newest}".lstrip("/")) or b"")


def _is_folder(name: str) -> bool:
    """Whether a name may be that of a folder with indexes: most files have an ending."""
    return "." not in name and "=" not in name


def _by_name(place: _Place) -> Iterator[IndexAddress]:
    """The Lance index that the last part of the address names."""
    folder, _, name = place.location.rpartition("/")
    if "lance" in place.kinds and folder:
        above = _Place(("lance",), folder, place.remote)
        yield from (found for found in _listed(above, 0) if found.name == name)
