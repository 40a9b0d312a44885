"""`lakewake init`: write a first configuration for a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakewake.cli.flags import Flags, argument, with_flags
from lakewake.cli.screen import print_block, print_json
from lakewake.net import schemes

if TYPE_CHECKING:
    from lakewake.config.init import Guess

EXAMPLE = "lakewake init lake/wine_reviews --name wines"


@argument("table", help="The table's path, or s3a://….")
@click.option("--name", metavar="NAME", help="Name of the index; the table's unless given.")
@click.option("--append", is_flag=True, help="Add an index to an existing configuration.")
@click.option("--force", is_flag=True, help="Replace an existing configuration.")
@click.option(
    "--untested-schemes",
    is_flag=True,
    help="Allow file systems that were never tested.",
)
@click.option(
    "--config",
    "-c",
    type=Path,
    metavar="FILE",
    help="The file to write; ./lakewake.toml unless given.",
)
@with_flags
def init(
    table: str,
    name: str | None,
    append: bool,
    force: bool,
    untested_schemes: bool,
    flags: Flags,
) -> int:
    """Write a commented lakewake.toml for a table.

    Looks at the table first and guesses which columns are text and which are payload.
    """
    if append and force:
        raise click.UsageError("--append keeps the file and --force replaces it: pass one of them")
    from lakewake.config.file import DEFAULT_FILE
    from lakewake.config.init import draft_config
    from lakewake.source.look import look_at

    if not untested_schemes:
        schemes.refuse_untested(table, "to try it anyway, add --untested-schemes")
    file = flags.config or Path(DEFAULT_FILE)
    look = look_at(table)
    found = draft_config(
        table,
        look,
        file,
        name,
        replace=force,
        append=append,
        untested_schemes=untested_schemes,
    )
    if flags.json:
        print_json({"config": str(file), **guess_dict(found)})
    elif not flags.quiet:
        print_block(f"{file} is written", guess_facts(found))
    return 0


def guess_dict(found: Guess) -> dict[str, object]:
    """A guess as `init --json` prints it."""
    return {
        "table": found.table,
        "text": list(found.text),
        "vector": found.vector,
        "payload": list(found.payload),
        "left_out": dict(found.left_out),
        "why": found.why,
    }


def guess_facts(found: Guess) -> list[tuple[str, str]]:
    """What was guessed, as lines of `name  value`."""
    facts = [("table", found.table)]
    if not found.by_vector:
        facts.append(("text", ", ".join(found.text)))
    if found.vector:
        facts.append(("vector", found.vector))
    facts += [("why", found.why), ("payload", ", ".join(found.payload) or "none")]
    facts += [("left out", f"{column}: {why}") for column, why in found.left_out.items()]
    return [*facts, ("next", "read it, then `lakewake plan`")]
