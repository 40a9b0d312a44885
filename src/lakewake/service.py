"""What the HTTP services that Lakewake asks have in common: their key, and when to ask again."""

from __future__ import annotations

import datetime
import ipaddress
import math
import os
import random
from email.utils import parsedate_to_datetime

import httpx

from lakewake.errors import SetupError

#: Seconds. A service that asks for more than the last is not waited for.
FIRST_WAIT, LONGEST_BACK_OFF, LONGEST_WAIT = 0.5, 30.0, 300.0
#: Answers below 500 that another try may change.
RETRIED = {408, 429}

Outcome = httpx.Response | httpx.TransportError


def wait_to_retry(outcome: Outcome, attempt: int, now: datetime.datetime) -> float | None:
    """Seconds until the next try is worth it, or None where it never is."""
    back_off = min(FIRST_WAIT * 2.0 ** min(attempt, 10), LONGEST_BACK_OFF)
    back_off *= random.uniform(0.5, 1)
    if isinstance(outcome, httpx.TransportError):
        # These two are said of the request before it is sent.
        unsent = isinstance(outcome, httpx.UnsupportedProtocol | httpx.LocalProtocolError)
        return None if unsent else back_off
    if outcome.status_code not in RETRIED and not outcome.is_server_error:
        return None
    asked = read_retry_after(outcome.headers.get("Retry-After", ""), now)
    if asked is None:
        return back_off
    return asked if asked <= LONGEST_WAIT else None


def read_retry_after(value: str, now: datetime.datetime) -> float | None:
    """The seconds that a Retry-After header asks for, as a number or a date; None for neither."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or datetime.UTC) - now).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def read_key(variable: str, url: httpx.URL) -> str:
    """The key that an environment variable holds; '' where the service needs none.

    Raises:
        SetupError: the service is elsewhere and the variable is not set, or holds no key.
    """
    key = os.environ.get(variable, "").strip() if variable else ""
    if not key and variable and not _is_local(url.host):
        raise SetupError(
            f"{shown(url)} needs a key, and the environment variable {variable} is not set",
            hint=f'export {variable}=…, or say `key_env = ""` for a service without keys',
        )
    if not (key.isascii() and key.isprintable()):
        raise SetupError(f"the environment variable {variable} holds something that is not a key")
    return key


def shown(url: httpx.URL) -> str:
    """The address without a user's name and password."""
    return str(url.copy_with(userinfo=b""))


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
