"""Many clients of one server, in one process: `clients.py URL INDEX QUERIES N SECONDS TOGETHER`.

Prints one JSON object: the time of each answer, how many failed, and how many mixed two versions.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx2

TIMEOUT = 60.0


async def ask(
    client: httpx2.AsyncClient, body: dict[str, Any], ends: float, seen: dict[str, Any]
) -> None:
    """One client: question after question until the time is over."""
    url, together = seen["url"], seen["together"]
    queries: list[list[float]] = seen["queries"]
    turn = 0
    while time.monotonic() < ends:
        turn += 1
        # Every fourth question asks for the rows that change together.
        checked = turn % 4 == 0
        question = body if checked else {"vector": queries[turn % len(queries)], "k": 10}
        began = time.perf_counter()
        try:
            response = await client.post(url, json=question)
            answer = response.json() if response.status_code == 200 else None
        except httpx2.HTTPError:
            answer = None
        seen["milliseconds"].append((time.perf_counter() - began) * 1000)
        if answer is None:
            seen["failed"] += 1
        elif checked:
            points = {hit["payload"]["points"] for hit in answer["hits"]}
            seen["mixed"] += len(points) != 1 or len(answer["hits"]) != together
            seen["versions"].add((answer["instant"], *points))


async def main(
    url: str, index: str, queries: str, clients: str, seconds: str, together: str
) -> None:
    """Run the clients and print what they saw."""
    keys = [f"wine_{k}" for k in range(int(together))]
    vectors = json.loads(Path(queries).read_text())
    body = {"vector": vectors[0], "k": int(together), "where": {"_key": {"in": keys}}}
    seen: dict[str, Any] = {
        "url": f"{url}/indexes/{index}/search",
        "together": int(together),
        "queries": vectors,
        "milliseconds": [],
        "failed": 0,
        "mixed": 0,
        "versions": set(),
    }
    limits = httpx2.Limits(max_connections=int(clients))
    async with httpx2.AsyncClient(timeout=TIMEOUT, limits=limits) as client:
        ends = time.monotonic() + float(seconds)
        await asyncio.gather(*(ask(client, body, ends, seen) for _ in range(int(clients))))
    result = {k: seen[k] for k in ("milliseconds", "failed", "mixed")}
    print(json.dumps({**result, "versions": [list(map(str, v)) for v in seen["versions"]]}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
