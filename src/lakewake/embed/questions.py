"""The vectors of questions: remembered, and made together if several searches wait for them."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lakewake.embed import Embedder
from lakewake.errors import EmbedError
from lakewake.model.recipe import ModelIdentity

#: How many vectors are remembered: 6 MB of 384 dimensions.
REMEMBERED = 4_096
#: The most questions that are embedded at the same time.
LOT = 32
#: Models that run in this process, where several questions at a time take less than one by one.
LOCAL = frozenset({"onnx", "sentence-transformers"})
#: Vectors that are made as quickly as they are remembered.
QUICK = frozenset({"column", "hashing", "static"})


@dataclass(eq=False)
class _Asked:
    """A question that a thread waits for.

    Attributes:
        turn: set when it is answered, or when its thread is to embed all that wait.
    """

    text: str
    turn: threading.Event = field(default_factory=threading.Event)
    vector: np.ndarray | None = None
    error: Exception | None = None


class Questions:
    """An embedder of questions, for any number of threads.

    A vector depends only on the text and the model, so what is remembered is the same for every
    caller; the rows that it finds are looked for each time. Errors are not remembered.

    Args:
        together: embed the questions that wait at the same time as one lot. A thread that asks
            does it for all of them; meanwhile others that have their vectors search.
    """

    def __init__(self, embedder: Embedder, *, together: bool, remembered: int = REMEMBERED) -> None:
        self._embedder, self._together, self._remembered = embedder, together, remembered
        self._known: OrderedDict[str, np.ndarray] = OrderedDict()
        self._waiting: deque[_Asked] = deque()
        self._is_embedding = False
        self._lock = threading.Lock()

    @property
    def identity(self) -> ModelIdentity:
        return self._embedder.identity

    @property
    def tokenizer(self) -> str | None:
        return self._embedder.tokenizer

    def load(self) -> None:
        self._embedder.load()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if len(texts) != 1:
            return self._embedder.embed(texts)
        vector = self._recalled(texts[0])
        if vector is None:
            vector = self._made(texts[0]) if self._together else self._embedder.embed(texts)[0]
            self._remember(texts[0], vector)
        return vector[None, :]

    def _recalled(self, text: str) -> np.ndarray | None:
        with self._lock:
            if text in self._known:
                self._known.move_to_end(text)
            return self._known.get(text)

    def _remember(self, text: str, vector: np.ndarray) -> None:
        # A copy: a row would keep the vectors of the whole lot.
        kept = vector.copy()
        kept.flags.writeable = False
        with self._lock:
            self._known[text] = kept
            while len(self._known) > self._remembered:
                self._known.popitem(last=False)

    def _made(self, text: str) -> np.ndarray:
        asked = _Asked(text)
        with self._lock:
            self._waiting.append(asked)
            waits, self._is_embedding = self._is_embedding, True
        if waits:
            asked.turn.wait()
        if asked.vector is None and asked.error is None:
            # Nobody embeds now, and this question is the first of those that wait.
            self._embed_waiting()
        if asked.error is not None:
            raise asked.error
        assert asked.vector is not None
        return asked.vector

    def _embed_waiting(self) -> None:
        with self._lock:
            some = [self._waiting.popleft() for _ in range(min(LOT, len(self._waiting)))]
        try:
            self._embed_all(some)
        finally:
            with self._lock:
                following = self._waiting[0] if self._waiting else None
                self._is_embedding = following is not None
            for asked in some:
                if asked.vector is None and asked.error is None:
                    asked.error = EmbedError("the question was not embedded", hint="ask it again")
                asked.turn.set()
            if following is not None:
                following.turn.set()

    def _embed_all(self, some: Sequence[_Asked]) -> None:
        try:
            vectors = self._embedder.embed([asked.text for asked in some])
        except Exception as error:
            if len(some) == 1:
                some[0].error = error
                return
            # One text may be at fault, and the others are not to fail with it.
            for asked in some:
                self._embed_all([asked])
            return
        for asked, vector in zip(some, vectors, strict=True):
            asked.vector = vector


def questions_of(embedder: Embedder, provider: str) -> Embedder:
    """The embedder of a provider as searches use it."""
    if provider in QUICK:
        return embedder
    return Questions(embedder, together=provider in LOCAL)
