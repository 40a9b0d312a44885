"""Re-ranking by a service that speaks `POST {url}/rerank`, as Cohere, Jina, TEI and vLLM do."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import httpx

from lakewake.deadline import TooLate, within
from lakewake.errors import EmbedError, SetupError
from lakewake.model.settings import RerankSettings

#: A question waits for the answer, so that no more than one second try is made.
TRIES = 2
#: Bytes of an answer: a number for each of some thousand texts is far less.
LONGEST = 10_000_000
HINT = "search without it: rerank=False, `--no-rerank`"


class HttpReranker:
    """Sends a question with its texts, and trusts no answer unseen."""

    def __init__(self, settings: RerankSettings) -> None:
        self._settings = settings
        self._url = f"{settings.url.rstrip('/')}/rerank"

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """A number for each text, in order.

        Raises:
            EmbedError: the service failed, or its answer cannot be used.
            SetupError: the variable with its key holds no key.
        """
        body = {"model": self._settings.name, "query": question, "documents": list(texts)}
        answer = self._post(body)
        try:
            return read_scores(json.loads(answer), len(texts))
        except ValueError as error:
            reason = error if str(error).startswith("answered") else "answered no JSON"
            raise EmbedError(f"the re-ranking service {reason}", hint=HINT) from error

    def _post(self, body: Mapping[str, object]) -> bytes:
        headers = {"Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        for tries_left in reversed(range(TRIES)):
            request = self._client.build_request("POST", self._url, json=body, headers=headers)
            try:
                response, answer = self._within_time(request)
            except (httpx.HTTPError, TooLate) as error:
                late = isinstance(error, httpx.TimeoutException | TooLate)
                if tries_left and not late:
                    continue
                why = str(error) or f"not within {self._settings.timeout:g} s"
                raise EmbedError(
                    f"the re-ranking service did not answer: {why}", hint=HINT
                ) from error
            if response.is_success:
                return answer
            if not (tries_left and response.is_server_error):
                break
        said = f"{response.status_code} {response.reason_phrase}".strip()
        raise EmbedError(f"the re-ranking service answered {said}", hint=HINT)

    def _within_time(self, request: httpx.Request) -> tuple[httpx.Response, bytes]:
        """The answer, all of it within the time limit and no longer than anybody needs."""
        answer = bytearray()
        opened: list[httpx.Response] = []

        def parts() -> Iterator[bytes]:
            opened.append(self._client.send(request, stream=True))
            yield from opened[0].iter_raw()

        def stop() -> None:
            for response in opened:
                response.close()

        for part in within(self._settings.timeout, parts(), stop):
            answer += part
            if len(answer) > LONGEST:
                raise EmbedError(
                    f"the re-ranking service answered more than {LONGEST:,} bytes", hint=HINT
                )
        return opened[0], bytes(answer)

    @cached_property
    def _client(self) -> httpx.Client:
        return httpx.Client(timeout=self._settings.timeout)

    @cached_property
    def _key(self) -> str:
        key = os.environ.get(self._settings.key_env, "").strip() if self._settings.key_env else ""
        if not (key.isascii() and key.isprintable()):
            raise SetupError(
                f"the variable {self._settings.key_env} holds something else than a key"
            )
        return key


def read_scores(body: object, count: int) -> list[float]:
    """The scores of an answer, in the order of the texts.

    Raises:
        ValueError: it is not one finite number for each text.
    """
    # TEI answers the list itself.
    items = body.get("results") if isinstance(body, dict) else body
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("answered no list of results")
    scores = {
        item["index"]: item.get("relevance_score", item.get("score"))
        for item in items
        if type(item.get("index")) is int
    }
    if len(items) != count or set(scores) != set(range(count)):
        raise ValueError(f"answered other than one result for each of {count} texts")
    numbers = [scores[n] for n in range(count)]
    try:
        if all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
            return [float(n) for n in numbers]
    except OverflowError:
        pass
    raise ValueError("answered scores that are no finite numbers")
