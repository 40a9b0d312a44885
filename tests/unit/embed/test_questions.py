"""The vectors of questions, for many threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lakewake.embed.hashing import HashingEmbedder
from lakewake.embed.questions import Questions, questions_of
from lakewake.errors import EmbedError
from support.sampling import HASHING


class Slow(HashingEmbedder):
    """An embedder that waits in its first call, and counts."""

    def __init__(self) -> None:
        super().__init__(HASHING)
        self.began, self.go_on = threading.Event(), threading.Event()
        self.lots: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.lots.append(list(texts))
        if len(self.lots) == 1:
            self.began.set()
            assert self.go_on.wait(30)
        if "bad" in texts:
            raise EmbedError("a bad text", hint="none")
        return super().embed(texts)


def vector_of(text: str) -> np.ndarray:
    return HashingEmbedder(HASHING).embed([text])[0]


def waiting(asked: Questions, number: int) -> None:
    """Wait until this many questions wait for the thread that embeds."""
    pause = threading.Event()
    while len(asked._waiting) < number:
        pause.wait(0.001)


def test_a_question_is_embedded_once() -> None:
    embedder = HashingEmbedder(HASHING)
    asked = Questions(embedder, together=False)
    first, again = asked.embed(["red wine"]), asked.embed(["red wine"])
    assert (first == again).all()
    assert (first[0] == vector_of("red wine")).all()
    assert embedder.received == ["red wine"]


def test_the_vectors_asked_for_last_are_remembered() -> None:
    embedder = HashingEmbedder(HASHING)
    asked = Questions(embedder, together=False, remembered=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        asked.embed([text])
    assert embedder.received == ["a", "b", "c", "b"]


def test_what_is_remembered_cannot_be_changed_by_a_caller() -> None:
    asked = Questions(HashingEmbedder(HASHING), together=False)
    asked.embed(["red wine"])[0][:] = 0
    with pytest.raises(ValueError, match="read-only"):
        asked.embed(["red wine"])[0][:] = 0
    assert (asked.embed(["red wine"])[0] == vector_of("red wine")).all()


def test_questions_that_wait_are_embedded_together() -> None:
    embedder = Slow()
    asked = Questions(embedder, together=True)
    texts = [f"wine {n}" for n in range(6)]
    with ThreadPoolExecutor(7) as threads:
        first = threads.submit(asked.embed, ["first"])
        assert embedder.began.wait(30)
        rest = [threads.submit(asked.embed, [text]) for text in texts]
        waiting(asked, 6)
        embedder.go_on.set()
        assert (first.result()[0] == vector_of("first")).all()
        for text, future in zip(texts, rest, strict=True):
            assert (future.result(30)[0] == vector_of(text)).all()
    assert [sorted(lot) for lot in embedder.lots] == [["first"], texts]


def test_a_question_at_fault_fails_alone_and_is_not_remembered() -> None:
    embedder = Slow()
    asked = Questions(embedder, together=True)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(asked.embed, ["first"])
        assert embedder.began.wait(30)
        good, bad = (threads.submit(asked.embed, [text]) for text in ("good", "bad"))
        waiting(asked, 2)
        embedder.go_on.set()
        first.result(30)
        assert (good.result(30)[0] == vector_of("good")).all()
        for _ in range(2):
            with pytest.raises(EmbedError, match="a bad text"):
                bad.result(30)
            bad = threads.submit(asked.embed, ["bad"])
        assert isinstance(bad.exception(30), EmbedError)
    assert sum("bad" in lot for lot in embedder.lots) == 4


def test_many_threads_get_the_vectors_of_their_own_questions() -> None:
    asked = Questions(HashingEmbedder(HASHING), together=True, remembered=10)
    texts = [f"wine {n % 50}" for n in range(600)]
    with ThreadPoolExecutor(8) as threads:
        vectors = list(threads.map(lambda text: asked.embed([text])[0], texts))
    for text, vector in zip(texts, vectors, strict=True):
        assert (vector == vector_of(text)).all()
    assert not asked._waiting
    assert not asked._is_embedding


@pytest.mark.parametrize("provider", ["hashing", "static", "column"])
def test_vectors_that_cost_nothing_are_not_remembered(provider: str) -> None:
    embedder = HashingEmbedder(HASHING)
    assert questions_of(embedder, provider) is embedder


def test_only_models_of_this_process_embed_questions_together() -> None:
    embedder = HashingEmbedder(HASHING)
    kinds = {p: questions_of(embedder, p) for p in ("onnx", "sentence-transformers", "http")}
    assert {p: q._together for p, q in kinds.items() if isinstance(q, Questions)} == {
        "onnx": True,
        "sentence-transformers": True,
        "http": False,
    }
