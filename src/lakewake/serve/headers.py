"""Checks the host, origin and key of every request, and adds security headers to every answer."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakewake.serve.keys import KeyRing
from lakewake.serve.refusals import Refused

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
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class SecurityHeaders:
    """Adds the headers to every answer, also to errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", CACHE)
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
        scope_for: path → the scope that it needs; None: it needs no key.
    """

    def __init__(self, app: ASGIApp, keys: KeyRing, scope_for: Callable[[str], str | None]) -> None:
        self._app, self._keys, self._scope_for = app, keys, scope_for

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        needed = self._scope_for(scope["path"]) if scope["type"] == "http" else None
        if needed is not None:
            self._check(Headers(scope=scope).get("authorization", ""), needed)
        await self._app(scope, receive, send)

    def _check(self, header: str, needed: str) -> None:
        kind, _, given = header.partition(" ")
        key = self._keys.find(given.strip()) if kind.lower() == "bearer" else None
        if key is None:
            fact = "the key is unknown" if header else "a key is needed"
            ask = {"WWW-Authenticate": "Bearer"}
            raise Refused(401, "no_key", fact, "send it as `Authorization: Bearer KEY`", ask)
        if not key.may(needed):
            fact = f"key '{key.name}' has the scope {key.scope}, but this needs {needed}"
            raise Refused(
                403, "scope", fact, "add one: `lakewake keys add FILE NAME --scope admin`"
            )
