"""Models by name, against local servers that answer and refuse as the services do."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest

from lakewake.config.models import read_model
from lakewake.config.section import Section
from lakewake.embed import for_questions, lot_of
from lakewake.embed.http import HttpEmbedder
from lakewake.errors import EmbedError, TextRefused
from support.http_server import listening

MODELS = {
    "openai": ("openai:text-embedding-3-small", "/v1/embeddings"),
    "ollama": ("ollama:nomic-embed-text:latest", "/v1/embeddings"),
    "vllm": ("vllm:intfloat/e5-small-v2", "/v1/embeddings"),
    "cohere": ("cohere:embed-english-v3.0", "/v1/embed"),
    "voyage": ("voyage:voyage-3.5", "/v1/embeddings"),
    "tei": ("tei:BAAI/bge-small-en-v1.5", "/v1/embed"),
}
MOST = {"openai": 2048, "ollama": 10_000, "vllm": 10_000, "cohere": 96, "voyage": 1000, "tei": 32}


def vector(text: str) -> list[float]:
    return [float(len(text)), float(sum(map(ord, text)) % 97), 0.5]


@dataclass
class Double:
    """A service: how it speaks, what it was sent, and how many requests it takes at a time.

    Attributes:
        refuse: statuses of the first answers.
        slots: more requests at a time are refused with 429.
        meet: no request is answered before this many have been there at the same time.
        most_seen: the most requests that were there at the same time.
    """

    service: str
    refuse: list[int] = field(default_factory=list)
    slots: int = 1_000
    seconds: float = 0.0
    meet: int = 1
    port: int = 0
    bodies: list[dict] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    active: int = 0
    most_seen: int = 0
    refused: int = 0
    lock: threading.Condition = field(default_factory=threading.Condition)

    def texts(self, body: dict) -> list[str]:
        return body[{"cohere": "texts", "tei": "inputs"}.get(self.service, "input")]

    def answer(self, texts: list[str]) -> object:
        vectors = [vector(text) for text in texts]
        if self.service == "tei":
            return vectors
        if self.service == "cohere":
            billed = {"billed_units": {"input_tokens": 7 * len(texts)}}
            return {"embeddings": {"float": vectors}, "meta": billed}
        data = [{"index": n, "embedding": v} for n, v in enumerate(vectors)]
        return {"data": data[::-1], "usage": {"total_tokens": 7 * len(texts)}}

    def embedder(self, **more: object) -> HttpEmbedder:
        name, _ = MODELS[self.service]
        url = f"http://127.0.0.1:{self.port}/v1"
        values = {"name": name, "url": url, "dimension": 3, **more}
        settings = read_model(Section("test", {"model": values}), Path())
        assert settings is not None
        self.waits: list[float] = []
        return HttpEmbedder(settings, self.waits.append)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    double: Double

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        double = self.double
        with double.lock:
            double.paths.append(self.path)
            double.bodies.append(body)
            double.active += 1
            double.most_seen = max(double.most_seen, double.active)
            double.lock.notify_all()
            status = double.refuse.pop(0) if double.refuse else 200
            if double.active > double.slots:
                status = 429
            double.refused += status != 200
            if status == 200:
                double.lock.wait_for(lambda: double.most_seen >= double.meet, timeout=60)
        texts = double.texts(body)
        if len(texts) > MOST[double.service]:
            status = 413
        if any("bad" in text for text in texts):
            status = 422
        if status == 200 and double.seconds:
            time.sleep(double.seconds)
        answer = double.answer(texts) if status == 200 else {"error": "refused"}
        content = json.dumps(answer).encode()
        with double.lock:
            double.active -= 1
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running(service: str, **settings):
    double = Double(service, **settings)
    with listening(type("Own", (Handler,), {"double": double})) as double.port:
        yield double


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for variable in ("OPENAI_API_KEY", "CO_API_KEY", "VOYAGE_API_KEY"):
        monkeypatch.setenv(variable, "a-key")


def expected(texts: list[str]) -> np.ndarray:
    return np.array([vector(text) for text in texts], np.float32)


@pytest.mark.parametrize("service", MODELS)
def test_every_service_embeds_in_its_own_language_and_in_order(service):
    texts = [f"text {n} {'x' * (n % 13)}" for n in range(700)]
    with running(service) as double:
        embedder = double.embedder()
        found = embedder.embed(texts)
        prefix = embedder._settings.passage_prefix
    assert np.array_equal(found, expected([prefix + text for text in texts]))
    assert set(double.paths) == {MODELS[service][1]}
    assert sum(len(double.texts(body)) for body in double.bodies) == 700


@pytest.mark.parametrize(
    ("service", "question", "text"),
    [
        ("openai", {}, {}),
        ("cohere", {"input_type": "search_query"}, {"input_type": "search_document"}),
        ("voyage", {"input_type": "query"}, {"input_type": "document"}),
    ],
)
def test_a_question_is_sent_as_one(service, question, text):
    with running(service) as double:
        embedder = double.embedder()
        for_questions(embedder).embed(["wine"])
        embedder.embed(["wine"])
    asked, told = double.bodies
    assert asked.items() >= question.items()
    assert told.items() >= text.items()
    assert ("input_type" in asked) == bool(question)


@pytest.mark.parametrize(
    ("service", "question", "text"),
    [
        ("ollama", "search_query: wine", "search_document: wine"),
        ("vllm", "query: wine", "passage: wine"),
        ("tei", "Represent this sentence for searching relevant passages: wine", "wine"),
    ],
)
def test_prefixes_are_put_before_questions_and_texts(service, question, text):
    with running(service) as double:
        embedder = double.embedder()
        for_questions(embedder).embed(["wine"])
        embedder.embed(["wine"])
    assert [double.texts(body) for body in double.bodies] == [[question], [text]]


@pytest.mark.parametrize(
    ("service", "key", "own"),
    [("openai", "dimensions", 1536), ("voyage", "output_dimension", 1024)],
)
def test_shortened_vectors_are_asked_for_only_if_the_dimension_is_not_the_models_own(
    service, key, own
):
    with running(service) as double:
        double.embedder().embed(["wine"])
        with pytest.raises(EmbedError, match=f"3 numbers, expected {own}"):
            double.embedder(dimension=own).embed(["wine"])
    shortened, whole = double.bodies
    assert shortened[key] == 3
    assert key not in whole


@pytest.mark.parametrize("service", ["openai", "cohere", "tei"])
def test_tokens_are_counted_by_the_service_or_estimated(service):
    with running(service) as double:
        embedder = double.embedder()
        embedder.embed(["a text of wine"] * 5)
        assert embedder.tokens == (25 if service == "tei" else 35)


def test_several_requests_are_in_flight_and_one_is_enough_for_a_question():
    texts = [f"text {n}" for n in range(80)]
    with running("openai", meet=8) as double:
        embedder = double.embedder(batch=10)
        assert np.array_equal(embedder.embed(texts), expected(texts))
        assert double.most_seen == 8
        assert lot_of(embedder) == 10 * 8 * 4
        assert lot_of(double.embedder(concurrency=1)) == 128


def test_fewer_requests_are_in_flight_after_a_refusal_and_more_again_later():
    texts = [f"text {n}" for n in range(400)]
    with running("openai", slots=2, seconds=0.01, meet=3) as double:
        embedder = double.embedder(batch=5, retries=50)
        assert np.array_equal(embedder.embed(texts), expected(texts))
        assert embedder._gate.limit < 8
        few = double.refused
        double.slots = 1_000
        embedder.embed(texts)
        assert embedder._gate.limit > 2
    # Without adapting, about six of each eight requests would be refused again and again.
    assert few < 80


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_refused_request_is_sent_again_and_the_others_are_not(status):
    texts = [f"text {n}" for n in range(40)]
    with running("openai", refuse=[status]) as double:
        found = double.embedder(batch=5).embed(texts)
    assert np.array_equal(found, expected(texts))
    assert len(double.bodies) == 9


def test_a_batch_too_large_for_the_service_is_halved():
    texts = [f"text {n}" for n in range(100)]
    with running("tei") as double:
        assert np.array_equal(double.embedder(batch=100).embed(texts), expected(texts))
        assert max(len(double.texts(b)) for b in double.bodies[1:]) < 100


def test_a_refused_text_keeps_the_vectors_of_all_others():
    texts = [f"text {n}" for n in range(60)]
    texts[17] = "bad text"
    with running("openai") as double, pytest.raises(TextRefused) as caught:
        double.embedder(batch=10).embed(texts)
    assert caught.value.positions == (17,)
    fine = [n for n in range(60) if n != 17]
    assert np.array_equal(caught.value.vectors[fine], expected([texts[n] for n in fine]))


def test_after_a_failure_no_further_request_is_begun():
    texts = [f"text {n}" for n in range(2_000)]
    with running("openai", refuse=[401] * 2_000) as double, pytest.raises(EmbedError, match="401"):
        double.embedder(batch=1).embed(texts)
    assert len(double.bodies) <= 16


def test_a_failure_does_not_show_the_key():
    with running("openai", refuse=[401]) as double, pytest.raises(EmbedError) as caught:
        double.embedder().embed(["text"])
    assert "a-key" not in str(caught.value)
    assert "OPENAI_API_KEY" in caught.value.hint


def test_a_request_holds_no_more_tokens_than_allowed():
    texts = ["x" * 300] * 20
    with running("openai") as double:
        double.embedder(request_tokens=500).embed(texts)
    assert [len(double.texts(body)) for body in double.bodies] == [4] * 5


def test_the_budget_of_tokens_is_waited_for():
    with running("openai") as double:
        embedder = double.embedder(batch=1, concurrency=1, tokens_per_minute=600)
        embedder.embed(["x" * 150] * 4)
    # 51 tokens are estimated for each text and 7 counted: the fourth is still within the burst.
    assert double.waits == []
    with running("tei") as double:
        embedder = double.embedder(batch=1, concurrency=1, tokens_per_minute=600)
        embedder.embed(["x" * 150] * 4)
    assert len(double.waits) == 3
    assert 14 < sum(double.waits) < 33
