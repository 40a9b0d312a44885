"""A server whose embedding service fails: other searches work, and it recovers with the service."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import monotonic

import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed.http import HttpEmbedder
from support.embedding_service import (
    Handler,
    Service,
    drips,
    drips_headers,
    running,
    stalls,
    status,
    zipped,
)
from support.serving import CONFIG, DiskLake, Server, serving, wait_until

SEARCH = "/indexes/sample/search"
NUMBERS = count()
#: Seconds for a whole request, and for the model's part of a query.
LIMIT, MODEL = 20, 4
CONCURRENT = 3


class Sick(Service):
    """A service of 32 dimensions that can recover."""

    well = True

    def do(self, sick: Callable[[Handler, list[str]], None]) -> None:
        """Behave like this from now on."""

        def step(handler: Handler, texts: list[str]) -> None:
            embed(handler, texts) if self.well else sick(handler, texts)

        self.script, self.well = [step], False


def embed(handler: Handler, texts: list[str]) -> None:
    data = [{"index": n, "embedding": [1.0 + n] * 32} for n in range(len(texts))]
    handler.reply(200, json.dumps({"data": data}).encode())


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sick, Server]]:
    with (
        running(Sick(script=[embed])) as service,
        serving(built(tmp_path_factory.mktemp("lake"), service).config) as server,
    ):
        yield service, server


@pytest.fixture
def sick(started: tuple[Sick, Server]) -> Iterator[tuple[Sick, Server]]:
    service, _ = started
    service.released, service.hung_up = threading.Event(), threading.Event()
    yield started
    service.well = True
    service.released.set()


def built(folder: Path, service: Service) -> DiskLake:
    """A lake on disk whose texts are embedded by the service."""
    url = f"http://127.0.0.1:{service.port}/v1"
    lake = DiskLake(folder)
    embedder = HttpEmbedder(ModelSettings(provider="http", name="m", url=url, dimension=32))
    recipe = replace(lake.parts.recipe, model=embedder.identity)
    lake.parts = replace(lake.parts, embedder=embedder, recipe=recipe)
    lake.write()
    model = '{provider = "hashing", name = "hashing", dimension = 32}'
    said = f'{{provider = "http", name = "m", url = "{url}", dimension = 32, timeout = {MODEL}}}'
    lake.config.write_text(
        CONFIG.replace(model, said) + f"\n[serve]\ntimeout = {LIMIT}\nconcurrent = {CONCURRENT}\n"
    )
    return lake


def another() -> str:
    """A question that was not asked before: the server remembers vectors of questions."""
    return f"smoky red {next(NUMBERS)}"


def test_a_question_that_was_asked_before_does_not_need_the_service(
    sick: tuple[Sick, Server],
) -> None:
    service, server = sick
    question = {"text": another()}
    with server.client() as client:
        first = client.post(SEARCH, json=question)
        service.do(status(503))
        again = client.post(SEARCH, json=question)
        assert (first.status_code, again.status_code) == (200, 200)
        assert again.json()["hits"] == first.json()["hits"]
        assert client.post(SEARCH, json={"text": another()}).status_code == 503


@pytest.mark.parametrize(
    "sickness",
    [status(429, Retry_After="300"), status(503), drips, drips_headers, stalls, zipped],
    ids=["Retry-After 300", "503", "drips", "drips headers", "stalls", "zipped"],
)
def test_keyword_searches_work_while_the_embedding_service_fails(
    sick: tuple[Sick, Server], sickness: Callable[[Handler, list[str]], None]
) -> None:
    service, server = sick
    service.do(sickness)

    def ask(**body: object) -> tuple[int, float]:
        began = monotonic()
        with server.client() as client:
            code = client.post(SEARCH, json={"text": another(), **body}).status_code
        return code, monotonic() - began

    with ThreadPoolExecutor(12) as pool:
        asked = len(service.requests)
        stuck = [pool.submit(ask) for _ in range(CONCURRENT * 2)]
        wait_until(lambda: len(service.requests) >= asked + CONCURRENT)
        others = [pool.submit(ask, mode="keyword") for _ in range(CONCURRENT * 2)]
        for code, seconds in (o.result() for o in others):
            assert code == 200
            assert seconds < LIMIT / 2
        service.well = True
        service.released.set()
        codes = [s.result()[0] for s in stuck]
    assert set(codes) <= {200, 429, 503, 504}
    assert ask()[0] == 200


def test_a_service_that_asks_for_minutes_fails_a_query_at_once_and_the_next_query_tries_again(
    sick: tuple[Sick, Server],
) -> None:
    service, server = sick
    service.do(status(429, Retry_After="300"))
    question = another()
    with server.client() as client:
        began = monotonic()
        answer = client.post(SEARCH, json={"text": question})
        assert answer.status_code == 503
        assert "Retry-After: 300" in answer.json()["error"]
        assert monotonic() - began < LIMIT / 2
        service.well = True
        assert client.post(SEARCH, json={"text": question}).status_code == 200


def test_a_slow_answer_ends_with_the_time_limit_of_the_query(sick: tuple[Sick, Server]) -> None:
    service, server = sick
    service.do(drips)
    with server.client() as client:
        began = monotonic()
        assert client.post(SEARCH, json={"text": another()}).status_code == 503
        assert monotonic() - began < LIMIT
    # The connection ended too: no thread is left behind.
    assert service.hung_up.wait(20)
