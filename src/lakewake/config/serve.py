"""`[serve]` of lakewake.toml."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from urllib.parse import urlsplit

from lakewake.config.section import Section, kind_of
from lakewake.config.settings import ServeSettings, TokenSettings

SERVE_KEYS = tuple(f.name for f in fields(ServeSettings))
#: A name, or an address; brackets and ports are not part of it.
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]{0,252}[A-Za-z0-9.])?|::1?")
#: Ways to sign that only the provider can use; HS256 would share its secret with every server.
ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
_HERE = ("localhost", "127.0.0.1", "::1")
_LIMITS = ("max_k", "max_query_chars", "max_body_bytes", "concurrent", "workers")
#: Each worker has models and memory of its own, so more of them are a slip of the pen.
MOST_WORKERS = 64


def check_hosts(section: Section, names: object) -> tuple[str, ...]:
    """The names, if each is a host name and nothing more.

    Raises:
        ConfigError: one of them is not.
    """
    if not isinstance(names, list):
        raise section.fail(
            f"`allowed_hosts` is {kind_of(names)}, expected a list of names",
            'allowed_hosts = ["search.example"]',
        )
    for name in names:
        if not isinstance(name, str) or not HOST.fullmatch(name):
            raise section.fail(
                f"`allowed_hosts` has {name!r}, expected a host name",
                'leave out scheme and port: allowed_hosts = ["search.example"]',
            )
    return tuple(str(name) for name in names)


def read_tokens(section: Section) -> TokenSettings:
    """The settings in `[serve.tokens]`.

    Raises:
        ConfigError: one of them is missing or cannot be used.
    """
    section.refuse_unknown(f.name for f in fields(TokenSettings))
    given = section.values.get("algorithms", ["RS256"])
    if not isinstance(given, list) or not given or not set(map(str, given)) <= set(ALGORITHMS):
        raise section.fail(
            "`algorithms` is not a list of algorithms with a public key",
            f'valid values are {", ".join(ALGORITHMS)}: algorithms = ["RS256"]',
        )
    found = TokenSettings(
        jwks=section.need("jwks", '"https://login.example/.well-known/jwks.json"'),
        issuer=section.need("issuer", '"https://login.example/"'),
        audience=section.need("audience", '"lakewake"'),
        where=section.need("where", '"tenant = :tenant"'),
        algorithms=tuple(given),
        leeway=section.get("leeway", float, 30.0),
    )
    if not 0 <= found.leeway <= 300:
        raise section.fail(f"`leeway` is {found.leeway:g}, expected 0 to 300", "leeway = 30")
    address = urlsplit(found.jwks)
    if "://" in found.jwks and address.scheme != "https" and address.hostname not in _HERE:
        raise section.fail("`jwks` is an address without https", 'jwks = "https://…"')
    return found


def read_serve(section: Section) -> ServeSettings:
    """The settings in the section; `keys` is the path as it is written.

    Raises:
        ConfigError: one of them cannot be used.
    """
    default = ServeSettings()
    section.refuse_unknown(SERVE_KEYS)
    found = ServeSettings(
        host=section.get("host", str, default.host),
        port=section.count("port", default.port),
        keys=section.get("keys", str),
        timeout=section.get("timeout", float, default.timeout),
        allowed_hosts=check_hosts(section, section.values.get("allowed_hosts", [])),
        rate=section.get("rate", float, default.rate),
        audit=section.get("audit", str),
        tokens=read_tokens(section.table("tokens")) if "tokens" in section.values else None,
        mcp=section.get("mcp", bool, default.mcp),
        **{key: section.count(key, getattr(default, key), least=1) for key in _LIMITS},
    )
    if found.port > 65_535:
        raise section.fail(f"`port` is {found.port}, expected 65535 or less", "port = 8377")
    if found.workers > MOST_WORKERS:
        fact = f"`workers` is {found.workers}, expected {MOST_WORKERS} or fewer"
        raise section.fail(fact, "workers = 2")
    if not 0 <= found.rate < math.inf:
        raise section.fail(
            f"`rate` is {found.rate}, expected a number of requests a second, or 0", "rate = 20"
        )
    if not 0 < found.timeout < math.inf:
        raise section.fail(
            f"`timeout` is {found.timeout}, expected a number of seconds above 0", "timeout = 30"
        )
    return found
