"""Checks the host, origin and key of every request, and adds security headers to every answer."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakewake.serve.callers import CALLER, Caller, Rates
from lakewake.serve.keys import KeyRing
from lakewake.serve.refusals import Refused

if TYPE_CHECKING:
    from lakewake.serve.tokens import Tokens

#: The page needs only its own files and this server. No inline script or style is allowed.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
#: Rows may be private, so no cache on the way may keep them.
CACHE = "no-store"
#: The same as ASGI has them: made once, because every answer has them.
_RAW = {name.lower().encode(): value.encode() for name, value in HEADERS.items()}
_UNCACHED = ((b"cache-control", CACHE.encode()),)
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class SecurityHeaders:
    """Adds the headers to every answer, also to errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [pair for pair in message.get("headers", ()) if pair[0] not in _RAW]
                cached = any(name == b"cache-control" for name, _ in given)
                message["headers"] = [*given, *_RAW.items(), *(() if cached else _UNCACHED)]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class KnownHosts:
    """Refuses requests that a page of another site makes a browser send.

    With DNS rebinding, a foreign name that points to this machine is in `Host`. A page of another
    site is in `Origin`.

    Args:
        hosts: the names of this server; empty: any name is accepted.
        numbers: accept any IP address too. DNS rebinding needs a name.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], *, numbers: bool = False) -> None:
        self._app, self._hosts, self._numbers = app, frozenset(hosts), numbers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host = headers.get("host", "")
            if self._hosts and not self._is_ours(host_name(host)):
                fact = "the Host header does not name this server"
                names = ", ".join(sorted(self._hosts))
                hint = f"use {names}, or add the name to `allowed_hosts` in [serve]"
                raise Refused(400, "host", fact, hint)
            origin = headers.get("origin")
            if origin is not None and urlsplit_or_none(origin) != host.lower():
                raise Refused(403, "origin", "requests from pages of other sites are refused")
        await self._app(scope, receive, send)

    def _is_ours(self, name: str) -> bool:
        return name in self._hosts or (self._numbers and is_number(name))


def urlsplit_or_none(address: str) -> str | None:
    """Host and port of an address; None if it is not one, as in `Origin: null`."""
    try:
        return urlsplit(address).netloc.lower() or None
    except ValueError:
        return None


def host_name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_number(host: str) -> bool:
    """Whether it is an IP address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def hosts_of(host: str, allowed: Collection[str] = (), *, keyed: bool = False) -> frozenset[str]:
    """The names that a server accepts; empty: any name.

    A page that rebinds its own name to the server has no key. So a server with keys accepts any
    name, unless `allowed` lists some.
    """
    if keyed and not allowed and not is_loopback(host):
        return frozenset()
    return LOOPBACK | {host.lower()} | {name.lower() for name in allowed}


class KeyCheck:
    """Lets a request through if its key is valid for the path.

    Args:
        keys: the accepted keys; None: only tokens are accepted.
        tokens: the accepted tokens; None: only keys are accepted.
        scope_for: path → the scope that it needs; None: it needs no key.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: KeyRing | None,
        scope_for: Callable[[str], str | None],
        rates: Rates,
        tokens: Tokens | None = None,
    ) -> None:
        self._app, self._keys, self._scope_for = app, keys, scope_for
        self._rates, self._tokens = rates, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        needed = self._scope_for(scope["path"]) if scope["type"] == "http" else None
        if needed is None:
            return await self._app(scope, receive, send)
        caller = await self._caller(Headers(scope=scope).get("authorization", ""), needed)
        self._rates.take(caller)
        before = CALLER.set(caller)
        try:
            await self._app(scope, receive, send)
        finally:
            CALLER.reset(before)

    async def _caller(self, header: str, needed: str) -> Caller:
        kind, _, given = header.partition(" ")
        given = given.strip() if kind.lower() == "bearer" else ""
        if self._tokens is not None and given.count(".") == 2:
            caller = await self._of_token(self._tokens, given)
            if needed != "read":
                fact = "a token has the scope read, but this needs a key"
                raise Refused(403, "scope", fact, "use a key with `--scope admin`")
            return caller
        return self._of_key(header, given, needed)

    async def _of_token(self, tokens: Tokens, given: str) -> Caller:
        caller = tokens.check(given)
        if caller is None:
            # In a thread: the provider may be slow, and others are waiting.
            await asyncio.to_thread(tokens.refresh)
            caller = tokens.check(given, again=False)
        assert caller is not None
        return caller

    def _of_key(self, header: str, given: str, needed: str) -> Caller:
        key = self._keys.find(given) if self._keys else None
        if key is None:
            fact = "the key is unknown" if header else "a key is needed"
            ask = {"WWW-Authenticate": "Bearer"}
            raise Refused(401, "no_key", fact, "send it as `Authorization: Bearer KEY`", ask)
        if not key.may(needed):
            limited = " for some rows" if key.where else ""
            fact = f"key '{key.name}' has the scope {key.scope}{limited}, but this needs {needed}"
            raise Refused(
                403, "scope", fact, "add one: `lakewake keys add FILE NAME --scope admin`"
            )
        return key.caller
