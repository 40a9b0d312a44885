"""Re-ranking by a service with `POST {url}/rerank`, as Cohere, Jina, TEI and vLLM have it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import httpx2

from lakewake.config.settings import RerankSettings
from lakewake.errors import EmbedError
from lakewake.net.deadline import at_most
from lakewake.net.service import (
    BadAnswer,
    NoAnswer,
    ServiceClient,
    endpoint,
    read_optional_key,
)

#: A search waits for the answer, so there is only one retry.
TRIES = 2
#: Most bytes of an answer: a number for each of some thousand texts takes far less.
LONGEST = 10_000_000
HINT = "search without it: `--no-rerank`, or rerank=False in Python"


class HttpReranker:
    """Sends a question with its texts, and checks every answer."""

    def __init__(self, settings: RerankSettings) -> None:
        self._settings = settings
        url = endpoint(settings.url, "rerank", "`url` of `rerank`")
        self._service = ServiceClient(url, lambda: self._key, settings.timeout)

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        body = {"model": self._settings.name, "query": question, "documents": list(texts)}
        answer = self._post(body)
        try:
            return read_scores(json.loads(answer), len(texts))
        except (ValueError, RecursionError) as error:
            fallback = "answered with something that is not JSON"
            reason = error if str(error).startswith("answered") else fallback
            raise EmbedError(f"the re-ranking service {reason}", hint=HINT) from error

    def _post(self, body: Mapping[str, object]) -> bytes:
        """The whole answer; all tries together take at most `timeout`."""
        try:
            with at_most(self._settings.timeout):
                answer = self._service.post(body, largest=LONGEST, tries=TRIES)
        except BadAnswer as bad:
            raise EmbedError(f"the re-ranking service {bad}", hint=HINT) from bad
        except (NoAnswer, httpx2.HTTPError) as error:
            late = isinstance(error, NoAnswer) and isinstance(error.error, httpx2.TimeoutException)
            why = f"not within {self._settings.timeout:g} s" if late else error
            raise EmbedError(f"the re-ranking service did not answer: {why}", hint=HINT) from error
        if answer.is_success:
            return answer.content
        status = f"{answer.status_code} {answer.reason_phrase}".strip()
        raise EmbedError(f"the re-ranking service answered {status}", hint=HINT)

    @cached_property
    def _key(self) -> str:
        return read_optional_key(self._settings.key_env)


def read_scores(body: object, count: int) -> list[float]:
    """The scores of an answer, in the order of the texts.

    Raises:
        ValueError: it does not hold one finite number for each text.
    """
    # TEI's answer is the list itself.
    items = body.get("results") if isinstance(body, dict) else body
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("answered with no list of results")
    scores = {
        item["index"]: item.get("relevance_score", item.get("score"))
        for item in items
        if type(item.get("index")) is int
    }
    if len(items) != count or set(scores) != set(range(count)):
        raise ValueError(f"answered without exactly one result for each of {count} texts")
    numbers = [scores[n] for n in range(count)]
    try:
        if all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
            return [float(n) for n in numbers]
    except OverflowError:
        pass
    raise ValueError("answered with scores that are not all finite numbers")
