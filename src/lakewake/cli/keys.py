"""`lakewake keys`: API keys for a server that others can reach."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lakewake.cli.flags import Flags, with_flags
from lakewake.cli.screen import count, print_block, print_json
from lakewake.errors import ConfigError
from lakewake.model.choices import SCOPES

EXAMPLE = "lakewake keys add keys.json page --scope read"


@click.argument("action", type=click.Choice(["add", "list", "remove"]))
@click.argument("file", type=Path)
@click.argument("name", required=False)
@click.option("--scope", type=click.Choice(SCOPES), default="read", help="What the key may do.")
@with_flags
def keys(action: str, file: Path, name: str | None, scope: str, flags: Flags) -> int:
    """Add, list or remove API keys. FILE holds only their hashes.

    A new key is printed once. Scope read may search; scope admin may also read /metrics.
    """
    if action == "list":
        return _list(file, flags)
    if name is None:
        raise ConfigError(f"`keys {action}` needs the name of a key", hint=EXAMPLE)
    if action == "add":
        return _add(file, name, scope, flags)
    return _remove(file, name, flags)


def _add(file: Path, name: str, scope: str, flags: Flags) -> int:
    from lakewake.serve.keys import add_key

    key = add_key(file, name, scope)
    if flags.json:
        print_json({"name": name, "scope": scope, "file": str(file), "key": key})
        return 0
    # Nothing but the key goes to stdout, so that it can be piped.
    print(key, flush=True)
    note = f"key '{name}' has scope {scope}; it is shown only once, {file} holds its hash"
    print(note, file=sys.stderr)
    return 0


def _list(file: Path, flags: Flags) -> int:
    from lakewake.serve.keys import read_keys

    found = read_keys(file)
    if flags.json:
        listed = [{"name": k.name, "scope": k.scope, "added": k.added} for k in found]
        print_json({"file": str(file), "keys": listed})
    else:
        facts = [(k.name, f"{k.scope}, added {k.added}") for k in found]
        print_block(f"{file}: {count(len(found), 'key')}", facts)
    return 0


def _remove(file: Path, name: str, flags: Flags) -> int:
    from lakewake.serve.keys import remove_key

    remove_key(file, name)
    if flags.json:
        print_json({"file": str(file), "removed": name})
    else:
        print(f"key '{name}' is removed; a running server refuses it from now on")
    return 0
