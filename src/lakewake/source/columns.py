"""Names of the working columns that this package adds to Spark DataFrames.

None of them can collide with a column of the table: a working DataFrame holds no other columns.
`view.row_view` gives the recipe's columns numbers (`payload(0)`, `text(0)`), and `compare.held`
keeps none of an index's payload.

Names that only one module and its callers use stay literals there: `unread` in `view`; `gone`,
`fresh`, `former` and `copies` in `versions.changed`; `fault` and `size` in `compare.faults`.
"""

from __future__ import annotations

#: The two parts of a row's identity: its partition path and its record key.
PARTITION, KEY = "row_partition", "row_key"
ID = (PARTITION, KEY)
#: The version of a row: the instant that wrote it, and its sequence number in that commit.
INSTANT, SEQNO = "row_instant", "row_seqno"
VERSION = (INSTANT, SEQNO)
#: Hashes of what a row's chunks are made from, and of its payload columns.
SOURCE_HASH, PAYLOAD_HASH = "source_hash", "payload_hash"
HASHES = (SOURCE_HASH, PAYLOAD_HASH)
#: The vector, if the table holds one itself.
VECTOR = "vector"
#: Of a chunk in the index: the number of its field in the recipe, and its position in that field.
FIELD, CHUNK = "field_number", "chunk_number"


def text(n: int) -> str:
    """The rendered text of field `n` of the recipe."""
    return f"text_{n}"


def payload(n: int) -> str:
    """Payload column `n` of the recipe."""
    return f"payload_{n}"
