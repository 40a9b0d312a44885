"""The rights of callers over an index in Lance and over one in Qdrant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakewake.store import Store
from lakewake.store.lance.store import LanceStore
from lakewake.store.qdrant.store import QdrantStore
from support.qdrant.locations import InMemory
from support.rights import RightsContract, World
from support.tenants import THEIRS, index_of


@pytest.fixture(scope="module", params=["lance", "qdrant"])
def worlds(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Any:
    def store(folder: Path) -> Store:
        if request.param == "lance":
            return LanceStore(str(folder / "index"), "sample")
        return QdrantStore(InMemory(), "sample", "sample")

    folders = [tmp_path_factory.mktemp("world") for _ in THEIRS]
    made = [
        World(folder, index_of(theirs, store(folder)))
        for folder, theirs in zip(folders, THEIRS, strict=True)
    ]
    yield made
    for world in made:
        world.close()


class TestRights(RightsContract):
    pass
