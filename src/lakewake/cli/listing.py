"""`lakewake list`: the indexes of a configuration, or those below a folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from lakewake.cli.flags import Flags, argument, config_option, with_flags
from lakewake.cli.indexes import opened_at, run_each, run_jobs
from lakewake.cli.screen import count, moment, print_block, selection_facts
from lakewake.errors import ConfigError

if TYPE_CHECKING:
    from lakewake.model.report import IndexDescription

EXAMPLE = "lakewake list lake --json"


@argument(
    "folder",
    required=False,
    help="A path or a store's address: list the indexes below it, not those of a configuration.",
)
@config_option
@with_flags
def list(folder: str | None, flags: Flags) -> int:
    """List indexes with their tables, as they describe themselves. Reads no table."""
    if folder is None:
        return run_each(flags, None, lambda index: index.describe(), show_description)
    if flags.config is not None:
        raise ConfigError("list takes a folder or --config, not both", hint="leave one of them out")
    import lakewake

    jobs: dict[str, Callable[[], IndexDescription]] = {
        address: partial(describe, address, flags) for address in lakewake.find_indexes(folder)
    }
    if not jobs and not flags.json:
        click.echo(f"no index below {folder}")
    return run_jobs(flags, jobs, show_description)


def describe(address: str, flags: Flags) -> IndexDescription:
    """What the index at an address records about itself."""
    with opened_at(address, flags) as index:
        return index.describe()


def show_description(found: IndexDescription) -> None:
    """Print what an index records about itself."""
    held = f"{count(found.rows, 'row')}, {count(found.chunks, 'chunk')}"
    state = f"{held}, generation {found.generation}" if found.built else "not built yet"
    print_block(f"{found.index}: {state}", description_facts(found))


def description_facts(found: IndexDescription) -> tuple[tuple[str, str], ...]:
    """The description of an index, as lines of `name  value`."""
    facts = (("table", found.table or f"{found.table_name}, in a folder that is not recorded"),)
    store = ("store", found.address or found.store)
    if not found.built:
        return (*facts, store)
    model, made_of = found.recipe["model"], found.recipe["vector"]
    text = ", ".join(template for _, template in found.recipe["fields"])
    return (
        *facts,
        store,
        ("index at", moment(found.instant)),
        ("made from", f"vectors in column {made_of}" if made_of else text),
        ("model", f"{model['name']} {model['precision']}, {model['dimension']} dimensions"),
        *selection_facts(found.recipe.get("where", ""), found.date, found.limit, found.index),
    )
