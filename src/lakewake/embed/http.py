"""Texts → vectors through a service: an OpenAI-compatible one, or one of those in `wire.py`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path

import httpx2
import numpy as np

from lakewake.config.services import known_model
from lakewake.config.settings import ModelSettings
from lakewake.embed import LOT
from lakewake.embed.flight import Budget, Gate, all_done
from lakewake.embed.texts import prefixed, refuse_undecodable
from lakewake.embed.wire import WIRES, Asked, estimated, tokens_of
from lakewake.errors import ConfigError, EmbedError, TextRefused
from lakewake.model.recipe import ModelIdentity
from lakewake.model.weights import cuts
from lakewake.net.service import (
    BadAnswer,
    NoAnswer,
    ServiceClient,
    endpoint,
    read_key,
    shortened,
    shown,
    status_hint,
)

BATCH = 64
#: Most bytes in an answer for one number in any notation, for the rest of one vector's item, and
#: for the rest of the answer.
NUMBER, VECTOR, ANSWER = 64, 1_000, 1_000_000
#: Statuses that refuse the texts: unreadable, too long, too many at once.
REFUSED = {400, 413, 422}
#: After more refusals than this without a single vector, the request is at fault, not the texts.
ENOUGH_REFUSED = 10
#: Requests for every slot in one call of `embed`: the last ones of a call leave slots idle.
ROUNDS = 4
#: More tokens than any text has.
NO_LIMIT = 1 << 60
HINT = "check that `url` is the address of an embedding service"


class HttpEmbedder:
    """Sends texts in batches, several at a time, retries if that can help, and checks every answer.

    Args:
        sleep: how to wait between two tries, and for the budget of tokens.

    Attributes:
        tokens: how many tokens were sent, as the service counted them; estimated if it does not.
    """

    def __init__(
        self, settings: ModelSettings, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        if settings.dimension < 1:
            raise ConfigError(
                f"model {settings.name!r} over http needs the length of its vectors",
                hint="add `dimension = …` to the model; its documentation names the number",
            )
        self._settings = settings
        self._wire = WIRES[settings.service]
        self._url = endpoint(settings.url, self._wire.path, '`url` of provider "http"')
        self._gate = Gate(max(1, settings.concurrency))
        self._budget = Budget(settings.tokens_per_minute, sleep)
        self._sleep = sleep
        self._service = ServiceClient(self._url, lambda: self._key, settings.timeout, self._wait)
        self._epochs = threading.local()
        self._lock = threading.Lock()
        self.tokens = 0

    @property
    def identity(self) -> ModelIdentity:
        """The model's name at the service, which does not reveal the weights."""
        return ModelIdentity(
            provider="http",
            name=self._settings.name,
            dimension=self._settings.dimension,
            max_tokens=self._settings.max_tokens,
            pooling=self._before_texts,
            normalized=False,
        )

    @property
    def lot(self) -> int:
        """How many texts to give to one call of `embed`."""
        requests = self._settings.concurrency * ROUNDS
        return max(LOT, self._batch * requests) if self._settings.concurrency > 1 else LOT

    @property
    def tokenizer(self) -> str | None:
        """The `tokenizer.json` that the settings name.

        Raises:
            ConfigError: it cannot be read.
        """
        if not self._settings.tokenizer:
            return None
        try:
            return Path(self._settings.tokenizer).expanduser().read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"tokenizer {self._settings.tokenizer} cannot be read",
                hint="set `tokenizer` to the path of the model's tokenizer.json, or remove it",
            ) from error

    def load(self) -> None:
        """Nothing to load: the service has the model."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """One row for each text, in order, as the service returned it.

        Raises:
            TextRefused: the service refused some texts; the error holds the others' vectors.
            EmbedError: the service failed, or its answer cannot be used.
            SetupError: the service needs a key, and there is none.
        """
        return self._embed(texts, self._settings.passage_prefix, question=False)

    def embed_questions(self, texts: Sequence[str]) -> np.ndarray:
        """The same for questions, which some models read in another way than a table's texts."""
        return self._embed(texts, self._settings.query_prefix, question=True)

    def _embed(self, texts: Sequence[str], prefix: str, *, question: bool) -> np.ndarray:
        refuse_undecodable(texts)
        texts = [prefix + text for text in texts] if prefix else texts
        vectors = np.full((len(texts), self._settings.dimension), np.nan, np.float32)
        reasons: dict[int, str] = {}
        most = self._settings.request_tokens or NO_LIMIT
        sizes = np.array([estimated(text) for text in texts], np.float64)
        all_done(
            [
                partial(self._work, vectors, texts, range(n, n + count), reasons, question)
                for n, count in cuts(sizes, self._batch, most)
            ],
            self._settings.concurrency,
        )
        if reasons:
            first = min(reasons)
            fact = f"{self._shown} refuses {len(reasons)} of {len(texts)} texts: {reasons[first]}"
            raise TextRefused(fact, dict(sorted(reasons.items())), vectors)
        return vectors

    def _work(
        self,
        vectors: np.ndarray,
        texts: Sequence[str],
        span: range,
        reasons: dict[int, str],
        question: bool,
    ) -> None:
        """One batch, in a slot."""
        with self._gate.slot() as epoch:
            self._epochs.value = epoch
            self._fill(vectors, texts, span, reasons, question)

    def _wait(self, seconds: float) -> None:
        """Called before another try: fewer requests will be in flight."""
        self._gate.slow(getattr(self._epochs, "value", 0))
        self._sleep(seconds)

    def _fill(
        self,
        vectors: np.ndarray,
        texts: Sequence[str],
        span: range,
        reasons: dict[int, str],
        question: bool,
    ) -> None:
        some = [texts[n] for n in span]
        response = self._post(some, question)
        if response.is_success:
            vectors[span.start : span.stop] = self._read(response, some)
        elif len(span) > 1:
            # Halved until each refused text is alone, so that the others are embedded.
            middle = len(span) // 2
            self._fill(vectors, texts, span[:middle], reasons, question)
            self._fill(vectors, texts, span[middle:], reasons, question)
        else:
            with self._lock:
                reasons[span.start] = self._message(response)
                useless = len(reasons) > ENOUGH_REFUSED and np.isnan(vectors).all()
            if useless:
                raise self._failed(response)

    def _post(self, texts: Sequence[str], question: bool) -> httpx2.Response:
        """An answer that is either a success or a refusal of the texts."""
        body = self._wire.body(Asked(self._settings.name, texts, question, self._shortened))
        self._budget.take(sum(map(estimated, texts)))
        largest = ANSWER + len(texts) * (VECTOR + NUMBER * self._settings.dimension)
        try:
            answer = self._service.post(body, largest=largest, tries=self._settings.retries + 1)
        except NoAnswer as none:
            raise self._unreachable(none) from none
        except BadAnswer as bad:
            raise EmbedError(f"{self._shown} {bad}", hint=HINT) from bad
        except httpx2.HTTPError as error:
            fact = f"cannot send a request to {self._shown}: {error}"
            raise EmbedError(fact, hint=HINT) from error
        if answer.is_success or answer.status_code in REFUSED:
            return answer
        raise self._failed(answer)

    def _read(self, response: httpx2.Response, texts: Sequence[str]) -> np.ndarray:
        try:
            body = response.json()
        except (ValueError, RecursionError) as error:
            raise EmbedError(
                f"{self._shown} answered with something that is not JSON", hint=HINT
            ) from error
        try:
            data = self._wire.data(body)
            vectors = read_vectors(data, len(texts), self._settings.dimension)
        except ValueError as error:
            raise EmbedError(
                f"{self._shown} {error}", hint="check `name` and `dimension` of the model"
            ) from error
        self._count(tokens_of(body), sum(map(estimated, texts)))
        return vectors

    def _count(self, tokens: int | None, guess: int) -> None:
        used = guess if tokens is None else tokens
        self._budget.correct(used - guess)
        with self._lock:
            self.tokens += used

    def _unreachable(self, none: NoAnswer) -> EmbedError:
        tried = "1 try" if none.tries == 1 else f"{none.tries} tries"
        return EmbedError(
            f"{self._shown} did not answer in {tried}: {none}",
            hint="check that it runs and that `url` is right, or raise `timeout` or `retries`",
        )

    def _failed(self, response: httpx2.Response) -> EmbedError:
        fact = f"{self._shown} answered {self._message(response)}"
        if "Retry-After" in response.headers:
            fact += f" (Retry-After: {response.headers['Retry-After']})"
        hint = status_hint(response.status_code, self._settings.key_env)
        if response.status_code == 429:
            hint = "wait, or lower `batch`; texts that are already embedded are not sent again"
        return EmbedError(fact, hint=hint)

    def _message(self, response: httpx2.Response) -> str:
        """Status and message, shortened, without the key that some services repeat."""
        text = shortened(response.text, self._key)
        code = f"{response.status_code} {response.reason_phrase}".strip()
        return f"{code}: {text}" if text else code

    @cached_property
    def _key(self) -> str:
        return read_key(self._settings.key_env, self._url)

    @property
    def _batch(self) -> int:
        return self._settings.batch or BATCH

    @property
    def _shortened(self) -> int:
        """The length to ask for, if it is not the model's own."""
        service, asked = self._settings.service, self._settings.dimension
        known = known_model(service, self._settings.name) if service else None
        return asked if known and known.dimension != asked else 0

    @property
    def _before_texts(self) -> str:
        """What changes the vectors besides the model."""
        typed = "by input type" if self._wire.typed else ""
        return prefixed(typed, self._settings.passage_prefix)

    @property
    def _shown(self) -> str:
        return shown(self._url)


def read_vectors(body: object, count: int, dimension: int) -> np.ndarray:
    """The vectors of an answer, in the order of the texts.

    Raises:
        ValueError: it does not hold one vector of `dimension` finite numbers for each text.
    """
    items = body.get("data") if isinstance(body, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("answered with no list of embeddings")
    if len(items) != count:
        raise ValueError(f"answered with {len(items)} vectors for {count} texts")
    order = [item.get("index", n) for n, item in enumerate(items)]
    if sorted(n for n in order if type(n) is int) != list(range(count)):
        raise ValueError(f"did not number its {count} vectors from 0 to {count - 1}")
    vectors = np.empty((count, dimension), np.float32)
    for n, item in zip(order, items, strict=True):
        vectors[n] = _read_vector(item.get("embedding"), dimension)
    return vectors


def _read_vector(value: object, dimension: int) -> np.ndarray:
    if not isinstance(value, list):
        raise ValueError(f"answered with a {type(value).__name__}, expected a list of numbers")
    if len(value) != dimension:
        raise ValueError(f"answered with a vector of {len(value)} numbers, expected {dimension}")
    if not all(type(number) in (int, float) for number in value):
        raise ValueError(f"answered with a vector of {dimension} values that are not all numbers")
    with np.errstate(over="ignore"):
        vector = np.array(value, np.float64).astype(np.float32)
    if not np.isfinite(vector).all():
        raise ValueError(f"answered with a vector of {dimension} numbers that are not all finite")
    return vector
