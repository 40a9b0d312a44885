"""Another store with the hot tier in front, as a store: for its contracts."""

from __future__ import annotations

from typing import Any

from lakewake.store import StoreReader
from lakewake.store.hot.base import Base, read_base, with_cells
from lakewake.store.hot.held import Held, follow
from lakewake.store.hot.reader import HotReader


class HotStore:
    """Opens each version from memory. The base is read once: later versions are made from it."""

    def __init__(self, store: Any, recall: float = 0.99) -> None:
        self.inner, self.recall = store, recall
        self.base: Base | None = None
        self.held: Held | None = None

    def open(self) -> HotReader | None:
        reader = self.inner.open()
        return None if reader is None else self.in_front_of(reader)

    def in_front_of(self, reader: StoreReader) -> HotReader:
        if self.base is None:
            read = read_base(reader, lambda: False)
            self.base = with_cells(read, self.recall, lambda: False)
        self.held = follow(self.base, reader, self.held)
        return HotReader(reader, self.held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
