"""An embedding service that misbehaves: a real HTTP server on this machine."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed.http import HttpEmbedder
from lakewake.errors import EmbedError, TextRefused
from lakewake.net.deadline import at_most

#: Refused by the server when among the texts.
BAD = "bad"


def vector(text: str) -> list[float]:
    return [float(len(text)), float(sum(map(ord, text)) % 97), 0.5]


def answer(texts: list[str]) -> dict[str, Any]:
    return {"data": [{"index": n, "embedding": vector(t)} for n, t in enumerate(texts)]}


@dataclass
class Service:
    """What the server does to each request in turn, the last one for ever; and what it was sent."""

    port: int = 0
    script: list[Callable[[Handler, list[str]], None]] = field(default_factory=list)
    requests: list[list[str]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    encodings: list[str | None] = field(default_factory=list)
    #: Set when a client hung up on an answer.
    hung_up: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def embedder(self, **settings: Any) -> HttpEmbedder:
        given = {
            "name": "tiny",
            "dimension": 3,
            "key_env": "SERVICE_KEY",
            "timeout": 10,
            **settings,
        }
        url = f"http://127.0.0.1:{self.port}/v1"
        self.waits: list[float] = []
        return HttpEmbedder(ModelSettings(provider="http", url=url, **given), self.waits.append)


class Handler(BaseHTTPRequestHandler):
    """Keeps connections open, as real services do."""

    protocol_version = "HTTP/1.1"
    service: Service

    def do_POST(self) -> None:
        assert self.path == "/v1/embeddings"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        service = self.service
        service.requests.append(body["input"])
        service.models.append(body["model"])
        service.keys.append(self.headers["Authorization"])
        service.encodings.append(self.headers["Accept-Encoding"])
        step = service.script[min(len(service.requests), len(service.script)) - 1]
        step(self, body["input"])

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def fine(handler: Handler, texts: list[str]) -> None:
    handler.reply(200, json.dumps(answer(texts)).encode())


def status(code: int, text: str = "", **headers: str) -> Callable[[Handler, list[str]], None]:
    return lambda handler, texts: handler.reply(code, text.encode(), **headers)


def says(body: object) -> Callable[[Handler, list[str]], None]:
    return lambda handler, texts: handler.reply(200, json.dumps(body).encode())


def backwards(handler: Handler, texts: list[str]) -> None:
    handler.reply(200, json.dumps({"data": answer(texts)["data"][::-1]}).encode())


def refuses_bad(handler: Handler, texts: list[str]) -> None:
    if any(BAD in text for text in texts):
        handler.reply(400, b'{"error": {"message": "I do not read that"}}')
    else:
        fine(handler, texts)


def hangs_up(handler: Handler, texts: list[str]) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def breaks_off(handler: Handler, texts: list[str]) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    hangs_up(handler, texts)


def stalls(handler: Handler, texts: list[str]) -> None:
    handler.service.released.wait(30)
    handler.close_connection = True


def send_while_heard(handler: Handler, head: bytes, part: bytes, pause: float) -> None:
    handler.close_connection = True
    try:
        handler.wfile.write(head)
        while not handler.service.released.wait(pause):
            handler.wfile.write(part)
    except OSError:
        handler.service.hung_up.set()


def drips(handler: Handler, texts: list[str]) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"
    send_while_heard(handler, head, b" ", 0.02)


def drips_headers(handler: Handler, texts: list[str]) -> None:
    send_while_heard(handler, b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.02)


def never_ends(handler: Handler, texts: list[str]) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n"
    send_while_heard(handler, head, b" " * 1_000_000, 0)


def zipped(handler: Handler, texts: list[str]) -> None:
    handler.reply(200, gzip.compress(b" " * 10_000_000), Content_Encoding="gzip")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.delenv("SERVICE_KEY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    service = Service()
    handler = type("ServiceHandler", (Handler,), {"service": service})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    service.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield service
    service.released.set()
    server.shutdown()
    thread.join()
    server.socket.close()


def expect(texts: list[str]) -> list[list[float]]:
    return [vector(text) for text in texts]


def test_texts_are_sent_in_batches_and_come_back_in_order(service):
    service.script = [fine]
    texts = [f"text {n}" * n for n in range(7)]
    assert service.embedder(batch=3).embed(texts).tolist() == expect(texts)
    assert service.requests == [texts[:3], texts[3:6], texts[6:]]
    assert set(service.models) == {"tiny"}


def test_a_batch_is_64_texts_unless_told_otherwise(service):
    service.script = [fine]
    service.embedder().embed(["x"] * 65)
    assert [len(texts) for texts in service.requests] == [64, 1]


def test_an_answer_out_of_order_is_put_in_order(service):
    service.script = [backwards]
    assert service.embedder().embed(["a", "bb", "ccc"]).tolist() == expect(["a", "bb", "ccc"])


def test_texts_arrive_as_they_were_sent(service):
    service.script = [fine]
    texts = ["quo\"te'", "new\nline", "nul \x00", "emoji 🍷", ""]
    service.embedder().embed(texts)
    assert service.requests == [texts]


def test_the_key_is_sent_as_a_bearer_token(service, monkeypatch):
    monkeypatch.setenv("SERVICE_KEY", " s3cret \n")
    service.script = [fine]
    service.embedder().embed(["a"])
    assert service.keys == ["Bearer s3cret"]


def test_a_service_on_this_machine_needs_no_key(service):
    service.script = [fine]
    service.embedder().embed(["a"])
    assert service.keys == [None]


def test_an_unreachable_service_is_named_after_all_tries(service):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        service.port = unused.getsockname()[1]
        embedder = service.embedder(retries=2)
        with pytest.raises(EmbedError, match=f"{service.port}.* 3 tries"):
            embedder.embed(["a"])
    assert len(service.waits) == 2


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_key_is_not_tried_again_and_its_variable_named(service, code):
    service.script = [status(code)]
    with pytest.raises(EmbedError, match=str(code)) as caught:
        service.embedder().embed(["a"])
    assert "SERVICE_KEY" in caught.value.hint
    assert len(service.requests) == 1


def test_a_key_that_the_service_repeats_is_not_shown(service, monkeypatch):
    monkeypatch.setenv("SERVICE_KEY", "s3cret")
    service.script = [status(401, "wrong key: s3cret")]
    with pytest.raises(EmbedError) as caught:
        service.embedder().embed(["a"])
    assert "wrong key: ***" in caught.value.fact
    assert "s3cret" not in str(caught.value)


def test_an_unknown_model_or_address_is_not_tried_again(service):
    service.script = [status(404, "no such model")]
    with pytest.raises(EmbedError, match="no such model"):
        service.embedder().embed(["a"])
    assert len(service.requests) == 1


def test_a_busy_service_is_waited_for_as_long_as_it_asks(service):
    service.script = [status(429, Retry_After="7"), fine]
    assert service.embedder().embed(["a"]).tolist() == expect(["a"])
    assert service.waits == [7]
    assert len(service.requests) == 2


def test_a_service_that_asks_for_an_hour_is_not_waited_for(service):
    service.script = [status(429, Retry_After="3600"), fine]
    with pytest.raises(EmbedError, match="Retry-After: 3600"):
        service.embedder().embed(["a"])
    assert service.waits == []


def test_a_failing_service_is_tried_again(service):
    service.script = [status(500), status(503), fine]
    assert service.embedder().embed(["a"]).tolist() == expect(["a"])
    assert len(service.requests) == 3
    assert len(service.waits) == 2


def test_only_the_batch_that_failed_is_sent_again(service):
    service.script = [fine, status(500), fine]
    texts = ["a", "b", "c"]
    assert service.embedder(batch=1).embed(texts).tolist() == expect(texts)
    assert service.requests == [["a"], ["b"], ["b"], ["c"]]


def test_a_service_that_fails_for_ever_is_given_up(service):
    service.script = [status(500, "out of memory")]
    with pytest.raises(EmbedError, match=r"500.*out of memory"):
        service.embedder(retries=3).embed(["a"])
    assert len(service.requests) == 4
    assert len(service.waits) == 3


@pytest.mark.parametrize("fault", [hangs_up, breaks_off])
def test_a_connection_that_is_closed_is_opened_again(service, fault):
    service.script = [fault, fine]
    assert service.embedder().embed(["a"]).tolist() == expect(["a"])
    assert len(service.requests) == 2


def test_a_service_that_stalls_is_given_up_after_the_timeout(service):
    service.script = [stalls]
    with pytest.raises(EmbedError, match="2 tries: timed out"):
        service.embedder(timeout=0.05, retries=1).embed(["a"])
    assert len(service.requests) == 2


def test_a_wrong_dimension_names_both(service):
    service.script = [says({"data": [{"index": 0, "embedding": [1, 2]}]})]
    with pytest.raises(EmbedError, match="2 numbers, expected 3"):
        service.embedder().embed(["a"])
    assert len(service.requests) == 1


def test_a_short_answer_names_both_counts(service):
    service.script = [says(answer(["a"]))]
    with pytest.raises(EmbedError, match="1 vectors for 2 texts"):
        service.embedder().embed(["a", "b"])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "null", '"1"'])
def test_a_vector_that_is_not_all_finite_numbers_is_refused(service, number):
    body = f'{{"data": [{{"index": 0, "embedding": [1, 2, {number}]}}]}}'
    service.script = [status(200, body)]
    with pytest.raises(EmbedError, match="not all"):
        service.embedder().embed(["a"])


@pytest.mark.parametrize("body", ["{broken", "", "<html>hello</html>"])
def test_an_answer_that_is_not_json_is_refused(service, body):
    service.script = [status(200, body)]
    with pytest.raises(EmbedError, match="not JSON"):
        service.embedder().embed(["a"])


def test_refused_texts_are_found_and_do_not_hide_the_others(service):
    service.script = [refuses_bad]
    texts = ["a", "b", f"c {BAD}", "d", "e", "f", "g", f"h {BAD}", "i"]
    with pytest.raises(TextRefused) as caught:
        service.embedder(batch=4).embed(texts)
    assert caught.value.positions == (2, 7)
    assert "I do not read that" in caught.value.reasons[7]
    others = [n for n in range(len(texts)) if n not in (2, 7)]
    assert caught.value.vectors[others].tolist() == expect([texts[n] for n in others])
    assert np.isnan(caught.value.vectors[[2, 7]]).all()


def test_no_text_is_embedded_twice_to_find_the_refused_ones(service):
    service.script = [refuses_bad]
    texts = [f"{n}" for n in range(16)]
    texts[5] = BAD
    with pytest.raises(TextRefused):
        service.embedder().embed(texts)
    embedded = [text for sent in service.requests if BAD not in sent for text in sent]
    assert sorted(embedded) == sorted(text for text in texts if text != BAD)
    assert len(service.requests) == 9


def test_a_service_that_refuses_everything_is_not_asked_about_every_text(service):
    service.script = [status(400, "no such parameter")]
    with pytest.raises(EmbedError, match="no such parameter") as caught:
        service.embedder().embed([f"{n}" for n in range(640)])
    assert not isinstance(caught.value, TextRefused)
    assert len(service.requests) < 40


def test_a_batch_that_is_too_large_is_sent_in_smaller_ones(service):
    service.script = [status(413), fine]
    texts = ["a", "b", "c", "d"]
    assert service.embedder().embed(texts).tolist() == expect(texts)
    assert service.requests == [texts, texts[:2], texts[2:]]


@pytest.mark.parametrize("answer", [drips, drips_headers])
def test_a_service_that_drips_is_left_when_its_time_is_over(service, answer):
    service.script = [answer]
    began = time.monotonic()
    with pytest.raises(EmbedError, match="1 try: timed out"):
        service.embedder(timeout=0.3, retries=0).embed(["a"])
    assert time.monotonic() - began < 15
    assert service.hung_up.wait(10)


def test_an_answer_without_end_is_cut_off(service):
    service.script = [never_ends]
    with pytest.raises(EmbedError, match=r"answered more than 1,001,192 bytes"):
        service.embedder(retries=0).embed(["a"])
    assert service.hung_up.wait(10)


def test_compressed_answers_are_neither_asked_for_nor_read(service):
    service.script = [zipped]
    with pytest.raises(EmbedError, match="an encoding that was not asked for"):
        service.embedder().embed(["a"])
    assert service.encodings == ["identity"]


def test_a_compressed_refusal_is_told_by_its_status(service):
    text = gzip.compress(b"x" * 10_000_000)
    service.script = [lambda handler, _: handler.reply(403, text, Content_Encoding="gzip")]
    with pytest.raises(EmbedError) as caught:
        service.embedder().embed(["a"])
    assert caught.value.fact.endswith("answered 403 Forbidden")


def test_json_nested_without_end_is_refused(service):
    service.script = [status(200, "[" * 100_000)]
    with pytest.raises(EmbedError, match="not JSON"):
        service.embedder().embed(["a"])


@pytest.mark.parametrize("asked", ["300", "20"])
def test_a_question_does_not_wait_as_long_as_a_busy_service_asks(service, asked):
    service.script = [status(429, Retry_After=asked)]
    with at_most(30), pytest.raises(EmbedError, match=f"429.*Retry-After: {asked}"):
        service.embedder().embed(["a"])
    assert service.waits == []


def test_a_question_waits_a_moment_for_a_service_that_fails(service):
    service.script = [status(503), fine]
    with at_most(30):
        assert service.embedder().embed(["a"]).tolist() == expect(["a"])
    assert len(service.waits) == 1
    assert service.waits[0] <= 2


def test_a_question_waits_no_longer_than_its_own_time_limit(service):
    service.script = [stalls]
    began = time.monotonic()
    with at_most(0.3), pytest.raises(EmbedError, match="timed out"):
        service.embedder(timeout=60).embed(["a"])
    assert time.monotonic() - began < 15
    assert len(service.requests) == 1
