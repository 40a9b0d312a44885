"""What a caller may ask of a sync."""

from __future__ import annotations

from dataclasses import dataclass

from lakewake.model.rows import RowId


@dataclass(frozen=True)
class SyncOptions:
    """What a sync does besides its ordinary work.

    Attributes:
        rebuild: build the index again from the whole table.
        reconcile: True: compare the whole table with the index even if history can be followed.
            False: never do that; raise if history cannot be followed.
        retry_quarantined: try the quarantined rows again.
        why: the reason for a rebuild or a reconcile that the sync itself asked for.
        tried: quarantined rows that this sync has tried already.
        allow_deletes: remove rows, however many.
        alone: a rebuild copies nothing from the index that it replaces.
        retrain: train the cells of an index in the lake again, after the sync.
        moving: commits were followed, and the day on which rows are selected is to move now.
        limit: build an index of only this many rows, for a first try; 0: of all.
    """

    rebuild: bool = False
    reconcile: bool | None = None
    retry_quarantined: bool = False
    why: str = ""
    tried: frozenset[RowId] = frozenset()
    allow_deletes: bool = False
    alone: bool = False
    retrain: bool = False
    moving: bool = False
    limit: int = 0


NO_OPTIONS = SyncOptions()
