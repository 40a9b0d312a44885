"""Error responses: `{"error": fact, "hint": …}` with a status.

400  the question is not valid        404  no such index or path   422  the shape of the request
401  no key, or an unknown one        408  too slow                429  too many requests at once
403  the key lacks the scope          413  too large               503  index, table or model failed
                                                                   504  took too long
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

#: The most faults of a body that are reported.
REPORTED = 5


class Refused(Exception):
    """A request that is refused.

    Args:
        kind: the label in the metrics.
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
    """Any value as JSON. What JSON or UTF-8 cannot hold becomes null, text or a question mark."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        try:
            text = json.dumps(content, ensure_ascii=False, allow_nan=False, default=json_value)
        except (TypeError, ValueError):
            # A number that JSON does not have, or a key that is not a text.
            text = json.dumps(json_value(content), ensure_ascii=False, allow_nan=False)
        # JSON can hold a lone surrogate, UTF-8 cannot.
        return text.encode("utf-8", "replace")


def refusal(refused: Refused) -> Json:
    """The response for a refused request."""
    body = {"error": without_secrets(refused.fact), "hint": without_secrets(refused.hint)}
    return Json(body, refused.status, refused.headers)


def refused_by(error: LakewakeError) -> Refused:
    """The refusal for an error: 400 if the question is at fault, else 503."""
    # A recipe that does not match is the fault of the server, not of the client.
    clients_fault = isinstance(error, ConfigError | TextRefused)
    return Refused(400 if clients_fault else 503, type(error).__name__, error.fact, error.hint)


def misshapen(errors: Iterable[Mapping[str, Any]]) -> Refused:
    """The refusal for a request of another shape. Values are not repeated: they may be long."""
    faults = [_fault(e) for e in list(errors)[:REPORTED]]
    hint = "see /openapi.json for the shape of every request"
    return Refused(422, "shape", "; ".join(faults) or "the request cannot be read", hint)


def _fault(error: Mapping[str, Any]) -> str:
    if error.get("type") == "model_attributes_type" and error.get("loc") == ("body",):
        return "body: not a JSON object, or sent without `Content-Type: application/json`"
    place = ".".join(str(part)[:40] for part in error.get("loc", ())[:6])
    return f"{place}: {error.get('msg', 'not valid')}" if place else str(error.get("msg"))
