"""What one request may cost, and what happens to the others meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from lakewake.api import Index
from lakewake.serve.limits import Gate
from lakewake.serve.refusals import Refused
from support.serving import Stalling, asking, wine_index

SEARCH = "/indexes/sample/search"


@pytest.fixture
def stalling() -> Iterator[tuple[Index, Stalling]]:
    embedder = Stalling()
    index, _ = wine_index(parts=lambda p: replace(p, embedder=embedder))
    yield index, embedder
    embedder.let_go.set()


def test_a_body_that_is_too_large_is_refused() -> None:
    index, _ = wine_index()
    with asking(index, max_body_bytes=1000) as client:
        assert client.post(SEARCH, json={"text": "x" * 900}).status_code == 200
        declared = client.post(SEARCH, json={"text": "x" * 1100})
        streamed = client.post(
            SEARCH,
            content=(b'{"text": "' + b"x" * 600, b"x" * 600 + b'"}'),
            headers={"Content-Type": "application/json"},
        )
        lying = client.post(
            SEARCH, content=b"{}", headers={"Content-Length": "9" * 30, "Content-Type": "a/b"}
        )
    assert [a.status_code for a in (declared, streamed, lying)] == [413, 413, 413]
    assert "1,000 bytes" in declared.json()["error"]


def test_k_and_the_length_of_texts_are_limited() -> None:
    index, _ = wine_index()
    with asking(index, max_k=7, max_query_chars=20) as client:
        assert client.post(SEARCH, json={"text": "x" * 20, "k": 7}).status_code == 200
        refused = [
            client.post(SEARCH, json={"text": "x", "k": 8}),
            client.post(SEARCH, json={"text": "x" * 21}),
            client.post(SEARCH, json={"text": "x", "where": "num = 1 OR num = 2 OR num = 3"}),
            client.post("/indexes/sample/recommend", json={"query": "x" * 21}),
            client.post("/indexes/sample/recommend", json={"query": "x", "k": 8}),
        ]
    assert [a.status_code for a in refused] == [422] * 5
    assert all("[serve]" in a.json()["hint"] for a in refused)


def test_a_stalled_search_ends_in_504_while_others_go_on(
    stalling: tuple[Index, Stalling],
) -> None:
    index, embedder = stalling
    with asking(index, timeout=0.5, concurrent=2) as client, ThreadPoolExecutor(1) as others:
        slow = others.submit(client.post, SEARCH, json={"text": "stall"})
        assert embedder.stalled.acquire(timeout=10)
        assert client.post(SEARCH, json={"text": "smoky"}).status_code == 200
        assert slow.result().status_code == 504
        assert "0.5 s" in slow.result().json()["error"]
        # Its thread is still blocked, the other one is not.
        assert client.post(SEARCH, json={"text": "smoky"}).status_code == 200


def test_searches_beyond_the_limit_wait_a_moment_and_then_get_429(
    stalling: tuple[Index, Stalling],
) -> None:
    index, embedder = stalling
    with asking(index, concurrent=2) as client, ThreadPoolExecutor(2) as others:
        slow = [others.submit(client.post, SEARCH, json={"text": "stall"}) for _ in range(2)]
        for _ in slow:
            assert embedder.stalled.acquire(timeout=10)
        refused = client.post(SEARCH, json={"text": "smoky"})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        # Requests that are not searches have their own threads.
        assert client.get("/indexes/sample/status").status_code == 200
        assert client.get("/ready").status_code == 200
        embedder.let_go.set()
        assert [s.result().status_code for s in slow] == [200, 200]
        assert client.post(SEARCH, json={"text": "smoky"}).status_code == 200


def test_a_search_without_a_free_thread_gets_the_next_one(
    stalling: tuple[Index, Stalling],
) -> None:
    index, embedder = stalling
    with asking(index, concurrent=1) as client, ThreadPoolExecutor(2) as others:
        slow = others.submit(client.post, SEARCH, json={"text": "stall"})
        assert embedder.stalled.acquire(timeout=10)
        waiting = others.submit(client.post, SEARCH, json={"text": "smoky"})
        embedder.let_go.set()
        assert (slow.result().status_code, waiting.result().status_code) == (200, 200)


def test_a_timeout_raised_by_the_work_is_not_taken_for_the_servers() -> None:
    def work() -> None:
        raise TimeoutError("mine")

    async def ask() -> None:
        await Gate(1, 5.0).run(work)

    with pytest.raises(TimeoutError, match="mine"):
        asyncio.run(ask())


def test_a_stream_is_sent_part_by_part() -> None:
    more = threading.Semaphore(0)

    def parts() -> Iterator[int]:
        for n in range(3):
            assert more.acquire(timeout=10)
            yield n

    async def listen() -> list[int]:
        heard = []
        more.release()
        async for n in Gate(1, 10.0).stream(parts):
            heard.append(n)
            more.release()
        return heard

    assert asyncio.run(listen()) == [0, 1, 2]


def test_a_stream_without_a_client_ends_at_its_next_part() -> None:
    more, closed = threading.Semaphore(0), threading.Event()

    def parts() -> Iterator[int]:
        try:
            while True:
                assert more.acquire(timeout=10)
                yield 1
        finally:
            closed.set()

    async def leave() -> None:
        more.release()
        stream = Gate(1, 10.0).stream(parts)
        assert await anext(stream) == 1
        await stream.aclose()  # type: ignore[attr-defined]
        more.release()
        assert await asyncio.to_thread(closed.wait, 10)

    asyncio.run(leave())


def test_a_stream_that_stalls_is_ended_by_the_time_limit() -> None:
    let_go = threading.Event()

    def parts() -> Iterator[int]:
        yield 1
        assert let_go.wait(10)

    async def listen() -> list[int]:
        return [n async for n in Gate(1, 0.2).stream(parts)]

    try:
        with pytest.raises(Refused, match=r"0\.2 s"):
            asyncio.run(listen())
    finally:
        let_go.set()


def test_an_error_in_a_stream_is_raised_to_its_reader() -> None:
    def parts() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    async def listen() -> list[int]:
        return [n async for n in Gate(1, 10.0).stream(parts)]

    with pytest.raises(ZeroDivisionError):
        asyncio.run(listen())


def test_a_stream_that_fails_reports_it_in_its_last_event() -> None:
    from lakewake.errors import EmbedError

    index, _ = wine_index()

    def breaks(*_: object, **__: object) -> Iterator[str]:
        yield "one"
        raise EmbedError("the model went away", hint="wait")

    index.recommend_stream = breaks  # type: ignore[method-assign,assignment]
    with asking(index) as client:
        answer = client.post("/indexes/sample/recommend", json={"query": "x", "stream": True})
    assert answer.text.endswith(
        'event: error\ndata: {"error": "the model went away", "hint": "wait"}\n\n'
    )
