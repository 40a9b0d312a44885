"""Many clients of one server: threads of this process, each with a connection of its own.

Usage: ask_many.py http URL BODIES_JSON CLIENTS SECONDS
       ask_many.py postgres CONNECTION QUERIES_NPY CLIENTS SECONDS SQL EF_SEARCH

`http` sends the bodies with the client of the standard library and reads the JSON of the answers;
`postgres` sends the vectors with psycopg and reads the rows. Each client asks every CLIENTS-th
question, so none is asked twice before all were. A body with `together` is about rows that change
together: an answer with other than that many rows, or with two values of `points`, is mixed.

All are warm before the clock starts. Prints one JSON object: the milliseconds of each answer, the
seconds of all, the processor time of this process, how many answers failed and how many were
mixed, the versions that were seen, and how many questions were asked.
"""

import json
import sys
import threading
import time
from pathlib import Path

#: Questions that each client asks before the clock starts.
WARM = 20


def over_http(url, bodies, notes):
    """What one client does for a question; questions are numbered."""
    from http.client import HTTPConnection
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=60)
    headers = {"Content-Type": "application/json"}

    def ask(n):
        together, body = bodies[n % len(bodies)]
        connection.request("POST", parts.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            return False
        found = json.loads(content)
        if together:
            points = {hit["payload"]["points"] for hit in found["hits"]}
            notes["mixed"] += len(points) != 1 or len(found["hits"]) != together
            notes["versions"].add((found["instant"], *points))
        return bool(found["hits"])

    return ask


def in_postgres(address, vectors, sql, ef_search):
    """What one client does for a question; questions are numbered."""
    import psycopg
    from pgvector.psycopg import register_vector

    connection = psycopg.connect(address, autocommit=True)
    register_vector(connection)
    connection.execute(f"SET hnsw.ef_search = {int(ef_search)}")

    def ask(n):
        vector = vectors[n % len(vectors)]
        found = connection.execute(sql, (vector, vector), prepare=True, binary=True)
        return bool(found.fetchall())

    return ask


def main(kind, address, questions, clients, seconds, *more):
    """Ask for this many seconds, and print what was seen."""
    notes = {"mixed": 0, "versions": set()}
    if kind == "http":
        given = json.loads(Path(questions).read_text())
        bodies = [(one.pop("together", 0), json.dumps(one).encode()) for one in given]

        def client():
            return over_http(address, bodies, notes)
    else:
        import numpy as np

        vectors = list(np.load(questions))

        def client():
            return in_postgres(address, vectors, *more)

    asks = [client() for _ in range(int(clients))]
    turns = list(range(len(asks)))
    for _ in range(WARM):
        for number, ask in enumerate(asks):
            turns[number] += len(asks)
            if not ask(turns[number]):
                sys.exit("a question has no answer")
    seen, failed = [[] for _ in asks], [0] * len(asks)
    began, spent = time.perf_counter(), time.process_time()
    ends = began + float(seconds)

    def run(number):
        ask = asks[number]
        while (before := time.perf_counter()) < ends:
            turns[number] += len(asks)
            try:
                failed[number] += not ask(turns[number])
            except OSError:
                failed[number] += 1
            seen[number].append((time.perf_counter() - before) * 1000)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(asks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(
        json.dumps(
            {
                "milliseconds": [round(ms, 3) for some in seen for ms in some],
                "seconds": time.perf_counter() - began,
                "processor": time.process_time() - spent,
                "failed": sum(failed),
                "mixed": notes["mixed"],
                "versions": sorted(list(map(str, one)) for one in notes["versions"]),
                "asked": max(turns),
            }
        )
    )


main(*sys.argv[1:])
