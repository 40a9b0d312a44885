"""`lakewake keys`: API keys for a server that others can reach."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from lakewake.cli.flags import Flags, with_flags
from lakewake.cli.screen import count, print_block, print_json
from lakewake.cli.sync import refuse_nan
from lakewake.errors import ConfigError
from lakewake.model.choices import SCOPES

if TYPE_CHECKING:
    from lakewake.serve.keys import Key

EXAMPLE = "lakewake keys add keys.json acme --where \"tenant = 'acme'\""


@click.argument("action", type=click.Choice(["add", "list", "remove"]))
@click.argument("file", type=Path)
@click.argument("name", required=False)
@click.option("--scope", type=click.Choice(SCOPES), default="read", help="What the key may do.")
@click.option("--where", default="", metavar="FILTER", help="The rows that the key may see.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, max=1e6),
    default=0.0,
    callback=refuse_nan,
    metavar="N",
    help="The most requests a second; 0: no limit.",
)
@with_flags
def keys(
    action: str, file: Path, name: str | None, scope: str, where: str, rate: float, flags: Flags
) -> int:
    """Add, list or remove API keys. FILE holds only their hashes.

    A new key is printed once. A key with scope read may search. One with scope admin may also read
    /metrics and ask for jobs. With --where, a key sees only the rows that pass the filter, on every
    path.
    """
    if action != "add":
        _refuse_limits(action)
    if action == "list":
        return _list(file, flags)
    if name is None:
        raise ConfigError(f"`keys {action}` needs the name of a key", hint=EXAMPLE)
    if action == "add":
        return _add(file, Given(name, scope, where, rate), flags)
    return _remove(file, name, flags)


def _refuse_limits(action: str) -> None:
    context = click.get_current_context()
    for option in ("scope", "where", "rate"):
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            raise ConfigError(
                f"`keys {action}` takes no --{option}",
                hint="to change a key, remove it and add it again",
            )


class Given(NamedTuple):
    """What a new key is given."""

    name: str
    scope: str
    where: str
    rate: float


def _add(file: Path, given: Given, flags: Flags) -> int:
    from lakewake.serve.keys import add_key

    name, scope = given.name, given.scope
    key = add_key(file, *given)
    if flags.json:
        print_json({"file": str(file), "key": key, **_shown(given)})
        return 0
    # Nothing but the key goes to stdout, so that it can be piped.
    print(key, flush=True)
    seen = f" and sees the rows with {given.where}" if given.where else ""
    note = f"key '{name}' has scope {scope}{seen}; it is shown only once, {file} holds its hash"
    print(note, file=sys.stderr)
    return 0


def _list(file: Path, flags: Flags) -> int:
    from lakewake.serve.keys import read_keys

    found = read_keys(file)
    if flags.json:
        listed = [{**_shown(k), "added": k.added} for k in found]
        print_json({"file": str(file), "keys": listed})
    else:
        facts = [(k.name, f"{k.scope}{_limits(k)}, added {k.added}") for k in found]
        print_block(f"{file}: {count(len(found), 'key')}", facts)
    return 0


def _shown(key: Given | Key) -> dict[str, Any]:
    """A key as JSON; filter and rate only if it has them."""
    named: dict[str, Any] = {"name": key.name, "scope": key.scope}
    more = {"where": key.where, "rate": key.rate}
    return named | {name: value for name, value in more.items() if value}


def _limits(key: Key) -> str:
    rate = f", {key.rate:g} requests a second" if key.rate else ""
    return (f", rows with {key.where}" if key.where else "") + rate


def _remove(file: Path, name: str, flags: Flags) -> int:
    from lakewake.serve.keys import remove_key

    remove_key(file, name)
    if flags.json:
        print_json({"file": str(file), "removed": name})
    else:
        print(f"key '{name}' is removed; a running server refuses it from now on")
    return 0
