"""`[spark]` of lakewake.toml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lakewake.config.section import KIND_NAMES, Section, kind_of
from lakewake.net.address import check_address

_SECRETS = "leave it to the environment, a credential provider or spark-defaults.conf"
_SECRET_ENDINGS = (".secret.key", ".session.token", ".password", ".secret", ".token")


def read_spark(section: Section) -> dict[str, str]:
    """The options for Spark that the section holds.

    Raises:
        ConfigError: one of them is not one value, or is a secret.
    """
    options = dict(_flatten(section, section.values, ""))
    for key, option in options.items():
        check_address(option, f"{section.where}: `{key}`", _SECRETS)
        if key.endswith(_SECRET_ENDINGS):
            raise section.fail(f"`{key}`: secrets do not belong in this file", _SECRETS)
    return options


def _flatten(section: Section, table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    """Dotted names as Spark writes them; `spark.` is added in front if it is missing."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flatten(section, value, f"{name}.")
        elif isinstance(value, list) or type(value) not in KIND_NAMES:
            raise section.fail(
                f"`{name}` is {kind_of(value)}, expected one value", "write it as one string"
            )
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield (name if name.startswith("spark.") else f"spark.{name}"), text
