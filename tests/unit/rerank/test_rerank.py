"""Re-ranking by a service, against a real server that also misbehaves; and by a cross-encoder."""

from __future__ import annotations

import gzip
import importlib.util
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lakewake.config.settings import RerankSettings
from lakewake.errors import EmbedError, SetupError
from lakewake.rerank import Reranker, load_reranker
from lakewake.rerank.http import LONGEST, read_scores

INSTALLED = importlib.util.find_spec("sentence_transformers") is not None


@dataclass
class Service:
    """The requests received, and the next answer."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answers: list[Callable[[Handler, dict[str, Any]], None]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def reranker(self, **settings: Any) -> Reranker:
        return load_reranker(RerankSettings(url=self.url, name="tiny", **settings))


class Handler(BaseHTTPRequestHandler):
    service: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.service.asked.append({"path": self.path, **body})
        self.service.headers.append(dict(self.headers))
        answer = self.service.answers.pop(0) if self.service.answers else by_length
        answer(self, body)

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def by_length(handler: Handler, body: dict[str, Any]) -> None:
    """Rank longer texts higher, best first."""
    scored = [{"index": n, "relevance_score": len(t)} for n, t in enumerate(body["documents"])]
    scored.sort(key=lambda r: -r["relevance_score"])
    handler.reply(200, json.dumps({"results": scored}).encode())


def says(status: int, body: bytes) -> Callable[[Handler, dict[str, Any]], None]:
    return lambda handler, _body: handler.reply(status, body)


def hangs_up(handler: Handler, _body: dict[str, Any]) -> None:
    handler.connection.close()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.delenv("RERANK_API_KEY", raising=False)
    made = Service()
    handler = type("Bound", (Handler,), {"service": made})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    made.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_scores_come_back_in_the_order_of_the_texts(service: Service) -> None:
    assert service.reranker().score("question", ["aa", "a", "aaa"]) == [2, 1, 3]
    asked = service.asked[0]
    assert (asked["path"], asked["model"]) == ("/v1/rerank", "tiny")
    assert (asked["query"], asked["documents"]) == ("question", ["aa", "a", "aaa"])
    assert "Authorization" not in service.headers[0]


def test_the_key_is_sent_as_a_bearer_token(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", " s3cret\n")
    service.reranker(key_env="MY_KEY").score("q", ["a"])
    assert service.headers[0]["Authorization"] == "Bearer s3cret"


def test_a_server_error_and_a_broken_connection_are_retried_once(service: Service) -> None:
    service.answers = [says(503, b"busy"), by_length, hangs_up, by_length]
    reranker = service.reranker()
    assert reranker.score("q", ["a"]) == [1]
    assert reranker.score("q", ["a"]) == [1]
    assert len(service.asked) == 4


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([says(503, b""), says(500, b"")], "answered 500"),
        ([says(401, b"no")], "answered 401"),
        ([says(200, b"<html>")], "answered with something that is not JSON"),
        ([says(200, b"{}")], "answered with no list"),
        ([hangs_up, hangs_up], "did not answer"),
    ],
)
def test_a_failing_service_is_named_with_a_hint(
    service: Service, answers: list[Any], said: str
) -> None:
    service.answers = list(answers)
    with pytest.raises(EmbedError, match=said) as caught:
        service.reranker().score("q", ["a"])
    assert "--no-rerank" in caught.value.hint
    assert len(service.asked) == len(answers)


def drips(handler: Handler, _body: dict[str, Any]) -> None:
    """Send a byte now and then, for longer than any time limit."""
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        while not handler.service.over.wait(0.05):
            handler.wfile.write(b" ")
            handler.wfile.flush()


def test_a_reranker_that_answers_byte_by_byte_times_out(service: Service) -> None:
    service.answers = [drips]
    with pytest.raises(EmbedError, match=r"did not answer: not within 0\.3 s"):
        service.reranker(timeout=0.3).score("q", ["a"])
    service.over.set()


def test_an_endless_answer_is_refused(service: Service) -> None:
    service.answers = [says(200, b" " * (LONGEST + 1))]
    with pytest.raises(EmbedError, match="answered with more than"):
        service.reranker().score("q", ["a"])


def test_a_compressed_answer_is_neither_asked_for_nor_read(service: Service) -> None:
    def zipped(handler: Handler, _body: dict[str, Any]) -> None:
        body = gzip.compress(b" " * 10_000_000)
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    service.answers = [zipped]
    with pytest.raises(EmbedError, match="an encoding that was not asked for"):
        service.reranker().score("q", ["a"])
    assert service.headers[0]["Accept-Encoding"] == "identity"


def test_a_query_does_not_wait_for_a_busy_reranker(service: Service) -> None:
    def busy(handler: Handler, _body: dict[str, Any]) -> None:
        handler.send_response(429)
        handler.send_header("Retry-After", "300")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    service.answers = [busy]
    with pytest.raises(EmbedError, match="answered 429"):
        service.reranker().score("q", ["a"])
    assert len(service.asked) == 1


def test_an_invalid_key_is_not_sent(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RERANK_API_KEY", "ключ")
    with pytest.raises(SetupError, match="RERANK_API_KEY holds something that is not a key"):
        service.reranker().score("q", ["a"])
    assert service.asked == []


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"results": "x"},
        {"results": [1, 2]},
        {"results": [{"index": 0, "relevance_score": 1}]},
        {"results": [{"index": 0, "relevance_score": 1}] * 2},
        {"results": [{"index": 0, "score": 1}, {"index": 2, "score": 1}]},
        {"results": [{"index": 0, "score": 1}, {"index": 1, "score": "1"}]},
        {"results": [{"index": 0, "score": 1}, {"index": 1, "score": None}]},
        {"results": [{"index": 0, "score": 1}, {"index": 1, "score": float("nan")}]},
        {"results": [{"index": 0, "score": 1}, {"index": 1, "score": True}]},
        {"results": [{"index": 0, "score": 1}, {"index": 1, "score": 10**400}]},
        {"results": [{"index": 0, "score": 1}, {"index": [1], "score": 1}]},
    ],
)
def test_an_answer_without_one_number_per_text_is_refused(body: object) -> None:
    with pytest.raises(ValueError, match="answered"):
        read_scores(body, 2)


def test_an_answer_may_be_a_bare_list() -> None:
    assert read_scores([{"index": 1, "score": 0.5}, {"index": 0, "score": 2}], 2) == [2, 0.5]


@pytest.mark.skipif(INSTALLED, reason="the extra lakewake[sentence-transformers] is installed")
def test_without_the_extra_the_error_says_how_to_install_it() -> None:
    reranker = load_reranker(RerankSettings(provider="cross-encoder", name="tiny"))
    with pytest.raises(SetupError) as caught:
        reranker.score("q", ["a"])
    assert caught.value.hint == "pip install 'lakewake[sentence-transformers]'"


@pytest.mark.skipif(
    not INSTALLED, reason="the extra lakewake[sentence-transformers], with torch, is not installed"
)
def test_a_cross_encoder_scores_each_text_with_the_question(tmp_path: Path) -> None:
    folder = tiny_cross_encoder(tmp_path / "tiny")
    reranker = load_reranker(RerankSettings(provider="cross-encoder", name=str(folder)))
    scores = reranker.score("smoky red", ["smoky red wine", "fresh white", "smoky red wine"])
    assert scores[0] == pytest.approx(scores[2])
    assert scores[0] != pytest.approx(scores[1])


@pytest.mark.skipif(not INSTALLED, reason="the extra lakewake[sentence-transformers] is not there")
def test_a_missing_cross_encoder_is_named(tmp_path: Path) -> None:
    reranker = load_reranker(RerankSettings(provider="cross-encoder", name=str(tmp_path / "no")))
    with pytest.raises(SetupError, match="cannot be loaded"):
        reranker.score("q", ["a"])


def tiny_cross_encoder(folder: Path) -> Path:
    """A cross-encoder with random weights, since trained weights are not available everywhere."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "smoky", "red", "wine", "fresh", "white"]
    (folder / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder
