"""`[serve]` of lakewake.toml."""

from __future__ import annotations

import math
import re
from dataclasses import fields

from lakewake.config.section import Section, kind_of
from lakewake.config.settings import ServeSettings

SERVE_KEYS = tuple(f.name for f in fields(ServeSettings))
#: A name, or an address; brackets and ports are not part of it.
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]{0,252}[A-Za-z0-9.])?|::1?")
_LIMITS = ("max_k", "max_query_chars", "max_body_bytes", "concurrent")


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
        **{key: section.count(key, getattr(default, key), least=1) for key in _LIMITS},
    )
    if found.port > 65_535:
        raise section.fail(f"`port` is {found.port}, expected 65535 or less", "port = 8377")
    if not 0 < found.timeout < math.inf:
        raise section.fail(
            f"`timeout` is {found.timeout}, expected a number of seconds above 0", "timeout = 30"
        )
    return found
