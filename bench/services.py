"""Bar 43: several requests to an embedding service in flight, beside one at a time."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from bench.ground import Ground
from bench.measures import Measure, Outcome, rounded
from lakewake.config.settings import ModelSettings
from lakewake.embed.http import HttpEmbedder

SLOTS, LATENCY, BATCH, DIMENSION = 8, 0.1, 16, 384


class _Handler(BaseHTTPRequestHandler):
    """Answers each request after `LATENCY` seconds, `SLOTS` of them at a time."""

    protocol_version = "HTTP/1.1"
    slots: threading.Semaphore

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        with self.slots:
            began = time.perf_counter()
            vector = [0.5] * DIMENSION
            data = [
                {"index": n, "embedding": [float(len(t)), *vector[1:]]} for n, t in enumerate(texts)
            ]
            content = json.dumps({"data": data}).encode()
            # The work of this double is part of the latency.
            time.sleep(max(0.0, LATENCY - (time.perf_counter() - began)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _service() -> Iterator[str]:
    handler = type("Own", (_Handler,), {"slots": threading.Semaphore(SLOTS)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def bar_43(ground: Ground) -> Outcome:
    """Texts a second through eight slots, as a share of eight times one slot."""
    texts = [f"text {n}" for n in range(BATCH * ground.sizes.requests)]
    one, eight = [], []
    with _service() as url:
        for _ in range(ground.sizes.rounds):
            one.append(_rate(url, 1, texts[: len(texts) // SLOTS]))
            eight.append(_rate(url, SLOTS, texts))
    share = statistics.median(eight) / (SLOTS * statistics.median(one))
    return Outcome(
        (Measure("of eight times one slot", share, "≥", 0.9),),
        {
            "texts": len(texts),
            "texts_in_a_request": BATCH,
            "latency_seconds": LATENCY,
            "slots": SLOTS,
            "one_slot_texts_per_second": rounded(one),
            "eight_slots_texts_per_second": rounded(eight),
        },
    )


def _rate(url: str, concurrency: int, texts: list[str]) -> float:
    settings = ModelSettings(
        provider="http",
        name="double",
        url=url,
        dimension=DIMENSION,
        batch=BATCH,
        key_env="",
        concurrency=concurrency,
    )
    embedder = HttpEmbedder(settings)
    embedder.embed(texts[: BATCH * concurrency])
    began = time.perf_counter()
    vectors = embedder.embed(texts)
    seconds = time.perf_counter() - began
    assert np.array_equal(vectors[:, 0], [len(t) for t in texts])
    return len(texts) / seconds
