"""A choice that a caller makes by its name."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from lakewake.errors import ConfigError

Choice = TypeVar("Choice", bound=Enum)


def one_of(kind: type[Choice], what: str, given: str) -> Choice:
    """The member of `kind` with that value.

    Raises:
        ConfigError: there is none.
    """
    try:
        return kind(given)
    except ValueError:
        valid = ", ".join(c.value for c in kind)
        raise ConfigError(f"{what} cannot be {given!r}", hint=f"valid: {valid}") from None
