"""One table of a configuration file: reads typed values, and names the table in errors."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakewake.errors import ConfigError
from lakewake.net.address import check_address

KIND_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
_EXAMPLES = {str: '"…", in quotes', int: "10", float: "0.5", bool: "true"}
#: Keys that mean something when they are blank: a service that needs no key.
MAY_BE_BLANK = ("key_env", "service", "query_prefix", "passage_prefix")

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_KEYS = ("key", "api_key", "token", "secret", "password")
#: Keys with text for a model or a reader; an address in it is only a word.
_PROSE = ("text", "template", "instructions", "query_prefix", "passage_prefix", "where")


@dataclass(frozen=True)
class Section:
    """One table of the file; `where` names it in errors."""

    where: str
    values: Mapping[str, Any]

    def fail(self, fact: str, hint: str) -> ConfigError:
        """An error about this table."""
        return ConfigError(f"{self.where}: {fact}", hint=hint)

    def refuse_unknown(self, valid: Iterable[str]) -> None:
        """Refuse keys that are not valid, and suggest a similar one that is."""
        valid = tuple(valid)
        for key in self.values:
            if key not in valid:
                near = difflib.get_close_matches(key, valid, n=1)
                guess = f"did you mean `{near[0]}`? " if near else ""
                raise self.fail(f"unknown key `{key}`", f"{guess}valid keys are {', '.join(valid)}")

    def refuse_secrets(self) -> None:
        """Refuse keys and passwords, and a `key_env` that looks like one."""
        for key in self.values:
            if key in _SECRET_KEYS:
                raise self.fail(
                    f"`{key}`: secrets do not belong in this file",
                    'put it into the environment and name the variable: key_env = "OPENAI_API_KEY"',
                )
        variable = self.get("key_env", str, "X")
        if variable and not _VARIABLE.fullmatch(variable):
            # Not shown: it may well be the key itself.
            raise self.fail(
                "`key_env` is not the name of an environment variable",
                'name the variable, not the key: key_env = "OPENAI_API_KEY"',
            )

    def refuse_secret_addresses(self) -> None:
        """Refuse a user, password or key in any address of this table and those below it."""
        for key, value in self.values.items():
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, dict):
                    Section(f"{self.where}: {key}", inner).refuse_secret_addresses()
                elif isinstance(inner, str) and key not in _PROSE:
                    check_address(inner, f"{self.where}: `{key}`")

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """The value of a key, of that type; the default when it is absent."""
        value = self.values.get(key, default)
        if key not in self.values:
            return value
        if kind is float and type(value) is int:
            return float(value)
        # `type is`, since isinstance takes True for an int.
        if type(value) is not kind:
            raise self.fail(
                f"`{key}` is {kind_of(value)}, expected {KIND_NAMES[kind]}",
                f"write {key} = {_EXAMPLES[kind]}",
            )
        if isinstance(value, str) and not value.strip() and key not in MAY_BE_BLANK:
            raise self.fail(f"`{key}` is blank", "give it a value, or remove the line")
        return value

    def table(self, key: str) -> Section:
        """The table at a key; empty if it is absent."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.fail(
                f"`{key}` is {kind_of(value)}, expected a table", f"begin it with a line [{key}]"
            )
        return Section(f"{self.where}: {key}", value)

    def need(self, key: str, example: str) -> str:
        """A required string."""
        value: str | None = self.get(key, str)
        if value is None:
            raise self.fail(f"`{key}` is missing", f"add a line such as {key} = {example}")
        return value

    def choice(self, key: str, valid: tuple[str, ...], default: str) -> str:
        """A string that must be one of `valid`."""
        value: str = self.get(key, str, default)
        if value not in valid:
            raise self.fail(f"`{key}` is {value!r}", f"valid values are {', '.join(valid)}")
        return value

    def count(self, key: str, default: int, least: int = 0) -> int:
        """A whole number of at least `least`."""
        value: int = self.get(key, int, default)
        if key in self.values and value < least:
            raise self.fail(
                f"`{key}` is {value}, expected {least} or more",
                f"write {key} = {max(default, least)}",
            )
        return value

    def seconds(self, key: str) -> float | None:
        """A duration such as "30s", "5m", "2h" or "1d", or in seconds; None if it is absent."""
        if key not in self.values:
            return None
        value = self.values[key]
        found = _TIME.fullmatch(value) if isinstance(value, str) else None
        if found:
            value = float(found[1]) * _SECONDS[found[2]]
        if type(value) not in (int, float) or not 0 < value < math.inf:
            shown = repr(value) if isinstance(value, (str, int, float)) else kind_of(value)
            hint = f'write it as {key} = "30s"; the units are s, m, h and d'
            raise self.fail(f"`{key}` is {shown}, expected a duration greater than zero", hint)
        return float(value)


def kind_of(value: object) -> str:
    """What a value is, in words."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a table"
    return KIND_NAMES.get(type(value), "a date or time")


def locate(folder: Path, path: str) -> str:
    """An absolute path, seen from the file's folder; a URI stays as it is."""
    if "://" in path:
        return path
    return os.path.normpath(folder / Path(path).expanduser())


def refuse_twins(fact: str, word: str, names: list[str]) -> None:
    """Refuse a name that is there twice; `fact` and `word` begin the error.

    Raises:
        ConfigError: there is one.
    """
    twins = sorted({n for n in names if names.count(n) > 1})
    if twins:
        raise ConfigError(f"{fact} {word} {twins[0]!r}", hint="use each name once")
