"""Write changed rows into a LanceDB table one by one; prints the seconds it took.

Usage: row_by_row.py DATABASE ROWS_IN_TABLE CHANGED_ROWS
"""

import sys
import time

import lancedb
import numpy as np

database, size, changed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
vectors = np.random.default_rng(7).normal(size=(size, 384)).astype(np.float32)


def record(n: int, text: str) -> dict[str, object]:
    return {"wine_id": f"wine_{n}", "text": text, "vector": vectors[n]}


index = lancedb.connect(database).create_table(
    "wines", [record(n, f"review number {n}") for n in range(size)], mode="overwrite"
)
began = time.perf_counter()
for n in range(changed):
    index.delete(f"wine_id = 'wine_{n}'")
    index.add([record(n, f"corrected review number {n}")])
print(time.perf_counter() - began)
