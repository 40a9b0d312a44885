"""How much of a table a sync read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reads:
    """File groups of a table that were read, and the bytes of the files.

    Attributes:
        groups_in_table, bytes_in_table: of the newest file slices of the whole table; None if
            nothing that was read shows it.
        shared_bytes: of the bytes, those that the sync of another index had read just before.
    """

    groups: int = 0
    bytes: int = 0
    groups_in_table: int | None = None
    bytes_in_table: int | None = None
    shared_bytes: int = 0

    @classmethod
    def whole(cls, groups: int, bytes: int) -> Reads:
        """All of a table."""
        return cls(groups, bytes, groups, bytes)

    def plus(self, later: Reads) -> Reads:
        """Both together; what both read counts twice, as it was read twice."""
        return Reads(
            self.groups + later.groups,
            self.bytes + later.bytes,
            self.groups_in_table if later.groups_in_table is None else later.groups_in_table,
            self.bytes_in_table if later.bytes_in_table is None else later.bytes_in_table,
            self.shared_bytes + later.shared_bytes,
        )


#: Nothing was read.
NO_READS = Reads()
