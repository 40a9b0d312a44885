"""Tokens of an identity provider (JWT, OpenID Connect), checked against its published keys.

Nothing in a token is believed before its signature is checked. Algorithm, issuer, audience and the
times are compared with the configuration, never with what the token says about itself.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

from lakewake.config.settings import TokenSettings
from lakewake.errors import ConfigError, FilterError, SetupError
from lakewake.model.where import NO_ROW, Where
from lakewake.net.deadline import TooLate, within
from lakewake.search.where import parse_where
from lakewake.serve.callers import Caller
from lakewake.serve.refusals import Refused

try:
    import httpx2
    import jwt
except ImportError as error:
    raise SetupError(
        "checking tokens needs a package that is not installed: pyjwt",
        hint="pip install 'lakewake[tokens]'",
    ) from error

_log = logging.getLogger("lakewake.serve")
#: The most characters of a token, and bytes of a key set.
LONGEST, LARGEST = 16_000, 1_000_000
#: Seconds after which published keys are read again, between two tries, and after which keys that
#: cannot be read again are no longer trusted.
FRESH, PAUSE, TRUSTED = 300.0, 10.0, 3600.0
#: The same of a file, which costs little to read.
FRESH_FILE, PAUSE_FILE = 2.0, 1.0
#: Seconds for a whole answer of the provider.
_TIMEOUT = 5.0
#: What reading and parsing a key set raises, whatever is in it.
_UNUSABLE = (OSError, ValueError, KeyError, TypeError, RecursionError, TooLate)
#: Kinds of keys that only the provider can sign with, and the least bits of an RSA key.
_KINDS, _RSA_BITS = ("RSA", "EC", "OKP"), 2048


class Tokens:
    """Checks tokens, and turns their claims into a caller.

    Args:
        read: reads the key set; it may block.
    """

    def __init__(
        self,
        settings: TokenSettings,
        read: Callable[[], bytes] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._read = read or (lambda: read_keys(settings.jwks))
        is_file = "://" not in settings.jwks
        self._fresh, self._pause = (FRESH_FILE, PAUSE_FILE) if is_file else (FRESH, PAUSE)
        self._reading = threading.Lock()
        self._keys: dict[str, Mapping[str, Any]] = {}
        self._read_at = self._tried_at = -float("inf")

    def check(self, token: str, *, again: bool = True) -> Caller | None:
        """Who sends a token, and the rows that they may see.

        Returns None if the keys have to be read first: call `refresh`, and check again.

        Args:
            again: False: judge by the keys that were read.

        Raises:
            Refused: 401, the token is not accepted.
        """
        if len(token) > LONGEST:
            raise _refused("it is too long")
        try:
            header = jwt.get_unverified_header(token)
            if again and self._is_stale(header.get("kid")):
                return None
            key = self._key(header.get("kid"))
            claims = self._claims(token, header, key)
        except jwt.ExpiredSignatureError:
            raise _refused("it has expired") from None
        except jwt.InvalidAudienceError:
            raise _refused("it is for another audience") from None
        except jwt.InvalidIssuerError:
            raise _refused("it is from another issuer") from None
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, RecursionError):
            raise _refused("it is not valid") from None
        return Caller(f"token {claims['sub'][:200]}", self._right(claims))

    def refresh(self) -> None:
        """Read the published keys, unless another thread just did. Blocks."""
        with self._reading:
            now = self._clock()
            if now - self._tried_at < self._pause:
                return
            self._tried_at = now
            try:
                self._keys = _parsed(self._read())
                self._read_at = now
            except (*_UNUSABLE, httpx2.HTTPError) as error:
                reason = type(error).__name__
                _log.error("the keys of tokens cannot be read from %s: %s", self._shown, reason)

    @property
    def _shown(self) -> str:
        return self._settings.jwks

    def _is_stale(self, name: object) -> bool:
        """Whether the keys should be read again: they are old, or lack the one of this name."""
        now = self._clock()
        lacks = name is not None and str(name) not in self._keys
        old = now - self._read_at > self._fresh
        return (old or lacks) and now - self._tried_at >= self._pause

    def _key(self, name: object) -> Mapping[str, Any]:
        keys = self._keys if self._clock() - self._read_at <= TRUSTED else {}
        # Without a name it can only be the single key.
        key = next(iter(keys.values())) if name is None and len(keys) == 1 else keys.get(str(name))
        if key is None:
            raise _refused("its key is unknown")
        return key

    def _claims(
        self, token: str, header: Mapping[str, Any], key: Mapping[str, Any]
    ) -> dict[str, Any]:
        algorithm = header.get("alg")
        if algorithm not in self._settings.algorithms or key.get("alg", algorithm) != algorithm:
            raise _refused("its algorithm is not accepted")
        found: dict[str, Any] = jwt.decode(
            token,
            jwt.PyJWK(dict(key), algorithm=algorithm).key,
            algorithms=[algorithm],
            audience=self._settings.audience,
            issuer=self._settings.issuer,
            leeway=self._settings.leeway,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        return found

    def _right(self, claims: Mapping[str, Any]) -> Where:
        """The filter with the claims in it; one that no row passes if a claim is missing."""
        try:
            return parse_where(self._settings.where, claims)
        except FilterError as error:
            _log.warning("a token of %.200r sees no row: %s", claims["sub"], error.fact)
            return NO_ROW


def read_keys(address: str) -> bytes:
    """The key set in a file or at an address. Redirects are not followed."""
    if "://" not in address:
        with Path(address).open("rb") as file:
            return file.read(LARGEST + 1)
    client = httpx2.Client(timeout=_TIMEOUT, follow_redirects=False)
    parts = within(_TIMEOUT, _parts(client, address), client.close)
    with closing(parts):  # type: ignore[type-var]
        return b"".join(parts)


def _parts(client: httpx2.Client, address: str) -> Iterator[bytes]:
    size = 0
    with client.stream("GET", address) as answer:
        if answer.status_code != 200:
            raise ValueError(answer.status_code)
        for part in answer.iter_bytes():
            size += len(part)
            if size > LARGEST:
                raise ValueError("too large")
            yield part


class _AnyClaim(dict[str, object]):
    """Has every claim, to find out whether a filter parses."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> object:
        return "x"


def check_tokens(settings: TokenSettings) -> None:
    """Check when the server starts that the filter parses and a file of keys can be used.

    Raises:
        ConfigError: it cannot; FilterError: the filter does not parse.
    """
    parse_where(settings.where, _AnyClaim())
    if "://" in settings.jwks:
        return
    try:
        usable = _parsed(read_keys(settings.jwks))
    except _UNUSABLE as error:
        usable, reason = {}, f": {type(error).__name__}"
    else:
        reason = "" if usable else ": it holds no public key for signatures"
    if not usable:
        raise ConfigError(
            f"the keys of tokens cannot be read from {settings.jwks}{reason}",
            hint="save the provider's JSON Web Key Set there, or give its address as `jwks`",
        )


def _parsed(content: bytes) -> dict[str, Mapping[str, Any]]:
    """Public keys by name. A key that is shared with signers, or too weak, is left out."""
    if len(content) > LARGEST:
        raise ValueError("too large")
    keys = [key for key in json.loads(content)["keys"] if _is_usable(key)]
    return {str(key.get("kid", n)): key for n, key in enumerate(keys)}


def _is_usable(key: Any) -> bool:
    if not isinstance(key, dict) or key.get("kty") not in _KINDS or key.get("use", "sig") != "sig":
        return False
    if "d" in key:
        # A private key: all who read it can sign.
        return False
    try:
        may_verify = "verify" in key.get("key_ops", ("verify",))
        made = jwt.PyJWK(key).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return False
    return may_verify and bool(key["kty"] != "RSA" or made.key_size >= _RSA_BITS)


def _refused(why: str) -> Refused:
    ask = {"WWW-Authenticate": "Bearer" + ' error="invalid_token"'}
    return Refused(401, "token", f"the token is not accepted: {why}", "get a new token", ask)
