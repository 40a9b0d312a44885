"""`[serve]` of lakewake.toml."""

from __future__ import annotations

import math
from dataclasses import fields

from lakewake.model.settings import ServeSettings
from lakewake.section import Section

SERVE_KEYS = tuple(f.name for f in fields(ServeSettings))
_LIMITS = ("max_k", "max_query_chars", "max_body_bytes", "concurrent")


def read_serve(section: Section) -> ServeSettings:
    """The settings that the section holds; the path of `keys` as it is written.

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
        **{key: section.count(key, getattr(default, key), least=1) for key in _LIMITS},
    )
    if found.port > 65_535:
        raise section.fail(f"`port` is {found.port}, expected 65535 or less")
    if not 0 < found.timeout < math.inf:
        raise section.fail(f"`timeout` is {found.timeout}, expected a number of seconds above 0")
    return found
