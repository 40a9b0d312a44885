"""What is answered instead of an answer: `{"error": fact, "hint": …}` with a status that fits.

400  the question          404  no such index or path     422  the shape of the request
401  no key, or a wrong one   403  a key that may not     429  too many at once, Retry-After
413  too large                503  index, table or model  504  took too long
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from lakewake.errors import (
    ConfigError,
    LakewakeError,
    TextRefused,
)
from lakewake.show.plain import json_value
from lakewake.show.redact import without_secrets

#: So many of the faults of a body are told.
TOLD = 5


class Refused(Exception):
    """A request that is not answered.

    Args:
        kind: what the metrics count it as.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        fact: str,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(fact)
        self.status, self.kind = status, kind
        self.fact, self.hint = fact, hint
        self.headers = dict(headers or {})


class Json(Response):
    """Any value as JSON; what JSON or UTF-8 cannot hold becomes null, text or a question mark."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes."""
        text = json.dumps(json_value(content), ensure_ascii=False, allow_nan=False)
        # Half of a surrogate pair is a character to JSON, but not to UTF-8.
        return text.encode("utf-8", "replace")


def refusal(refused: Refused) -> Json:
    """The answer that says why there is none."""
    body = {"error": without_secrets(refused.fact), "hint": without_secrets(refused.hint)}
    return Json(body, refused.status, refused.headers)


def refused_by(error: LakewakeError) -> Refused:
    """An error of ours as a refusal: a fault of the question, or of what answers it."""
    # A recipe that does not match is the server's fault, not that of who asks.
    asked_wrong = isinstance(error, ConfigError | TextRefused)
    return Refused(400 if asked_wrong else 503, type(error).__name__, error.fact, error.hint)


def misshapen(errors: Iterable[Mapping[str, Any]]) -> Refused:
    """A request that is not of the documented shape. Values are not repeated: they may be long."""
    told = [_told(e) for e in list(errors)[:TOLD]]
    hint = "/openapi.json describes every request"
    return Refused(422, "shape", "; ".join(told) or "the request cannot be read", hint)


def _told(error: Mapping[str, Any]) -> str:
    if error.get("type") == "model_attributes_type" and error.get("loc") == ("body",):
        return "body: not a JSON object, or sent without `Content-Type: application/json`"
    place = ".".join(str(part)[:40] for part in error.get("loc", ())[:6])
    return f"{place}: {error.get('msg', 'not valid')}" if place else str(error.get("msg"))
