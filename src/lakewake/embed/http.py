"""Texts → vectors through an OpenAI-compatible service: `POST {url}/embeddings`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import httpx
import numpy as np

from lakewake.config.settings import ModelSettings
from lakewake.embed.texts import refuse_undecodable
from lakewake.errors import ConfigError, EmbedError, TextRefused
from lakewake.model.recipe import ModelIdentity
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
HINT = "check that `url` is the address of an embedding service"


class HttpEmbedder:
    """Sends texts in batches, retries if that can help, and checks every answer.

    Args:
        sleep: how to wait between two tries.
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
        self._url = endpoint(settings.url, "embeddings", '`url` of provider "http"')
        self._service = ServiceClient(self._url, lambda: self._key, settings.timeout, sleep)

    @property
    def identity(self) -> ModelIdentity:
        """The model's name at the service, which does not reveal the weights."""
        return ModelIdentity(
            provider="http",
            name=self._settings.name,
            dimension=self._settings.dimension,
            max_tokens=self._settings.max_tokens,
            normalized=False,
        )

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
        refuse_undecodable(texts)
        vectors = np.full((len(texts), self._settings.dimension), np.nan, np.float32)
        reasons: dict[int, str] = {}
        size = self._settings.batch or BATCH
        for start in range(0, len(texts), size):
            end = min(start + size, len(texts))
            self._fill(vectors, texts, range(start, end), reasons)
        if reasons:
            first = min(reasons)
            fact = f"{self._shown} refuses {len(reasons)} of {len(texts)} texts: {reasons[first]}"
            raise TextRefused(fact, reasons, vectors)
        return vectors

    def _fill(
        self, vectors: np.ndarray, texts: Sequence[str], span: range, reasons: dict[int, str]
    ) -> None:
        response = self._post([texts[n] for n in span])
        if response.is_success:
            vectors[span.start : span.stop] = self._read(response, len(span))
        elif len(span) > 1:
            # Halved until each refused text is alone, so that the others are embedded.
            middle = len(span) // 2
            self._fill(vectors, texts, span[:middle], reasons)
            self._fill(vectors, texts, span[middle:], reasons)
        else:
            reasons[span.start] = self._message(response)
            if len(reasons) > ENOUGH_REFUSED and np.isnan(vectors).all():
                raise self._failed(response)

    def _post(self, texts: Sequence[str]) -> httpx.Response:
        """An answer that is either a success or a refusal of the texts."""
        body = {"model": self._settings.name, "input": list(texts)}
        largest = ANSWER + len(texts) * (VECTOR + NUMBER * self._settings.dimension)
        try:
            answer = self._service.post(body, largest=largest, tries=self._settings.retries + 1)
        except NoAnswer as none:
            raise self._unreachable(none) from none
        except BadAnswer as bad:
            raise EmbedError(f"{self._shown} {bad}", hint=HINT) from bad
        except httpx.HTTPError as error:
            fact = f"cannot send a request to {self._shown}: {error}"
            raise EmbedError(fact, hint=HINT) from error
        if answer.is_success or answer.status_code in REFUSED:
            return answer
        raise self._failed(answer)

    def _read(self, response: httpx.Response, count: int) -> np.ndarray:
        try:
            body = response.json()
        except (ValueError, RecursionError) as error:
            raise EmbedError(
                f"{self._shown} answered with something that is not JSON", hint=HINT
            ) from error
        try:
            return read_vectors(body, count, self._settings.dimension)
        except ValueError as error:
            raise EmbedError(
                f"{self._shown} {error}", hint="check `name` and `dimension` of the model"
            ) from error

    def _unreachable(self, none: NoAnswer) -> EmbedError:
        tried = "1 try" if none.tries == 1 else f"{none.tries} tries"
        return EmbedError(
            f"{self._shown} did not answer in {tried}: {none}",
            hint="check that it runs and that `url` is right, or raise `timeout` or `retries`",
        )

    def _failed(self, response: httpx.Response) -> EmbedError:
        fact = f"{self._shown} answered {self._message(response)}"
        if "Retry-After" in response.headers:
            fact += f" (Retry-After: {response.headers['Retry-After']})"
        hint = status_hint(response.status_code, self._settings.key_env)
        if response.status_code == 429:
            hint = "wait, or lower `batch`; texts that are already embedded are not sent again"
        return EmbedError(fact, hint=hint)

    def _message(self, response: httpx.Response) -> str:
        """Status and message, shortened, without the key that some services repeat."""
        text = shortened(response.text, self._key)
        code = f"{response.status_code} {response.reason_phrase}".strip()
        return f"{code}: {text}" if text else code

    @cached_property
    def _key(self) -> str:
        return read_key(self._settings.key_env, self._url)

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
