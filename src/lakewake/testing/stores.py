"""What every store promises, as tests. A store's own suite subclasses `StoreContract`."""

from __future__ import annotations

import pytest

from lakewake.store import Store
from lakewake.testing.batches import BatchContract
from lakewake.testing.dropping import DroppingContract
from lakewake.testing.reading import ReadingContract
from lakewake.testing.samples import batch, chunk, frontier, recipe
from lakewake.testing.searching import SearchingContract
from lakewake.testing.writing import WritingContract


class StoreContract(
    WritingContract, ReadingContract, SearchingContract, DroppingContract, BatchContract
):
    """Promises of `Store` and `StoreReader`; a subclass provides the `store` fixture.

    Attributes:
        many: how many chunks one commit must be able to delete.
        drops: how many times a drop races with a commit.
    """

    many = 50_000
    drops = 5

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError

    @pytest.fixture
    def built(self, store: Store) -> Store:
        """An index of three rows at frontier 1."""
        rows = [chunk("a", "red"), chunk("b", "white"), chunk("c", "rosé")]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        return store
