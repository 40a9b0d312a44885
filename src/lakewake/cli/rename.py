"""`lakewake rename`: give an index another name."""

from __future__ import annotations

from lakewake.cli.flags import Flags, argument, config_option, with_flags
from lakewake.cli.indexes import opened
from lakewake.cli.screen import print_block, print_json

EXAMPLE = "lakewake rename wines reds"


@argument("old", help="The index, by its name in the configuration.")
@argument("new", help="Its new name.")
@config_option
@with_flags
def rename(old: str, new: str, flags: Flags) -> int:
    """Give an index another name in the configuration. Nothing is built or moved.

    In its store the index keeps its old name, which the configuration records as `stored_as`. A
    running sync or server goes on with the same index.
    """
    with opened(flags) as lake:
        index = lake.rename(old, new)
        settings, file = index.settings, str(lake.settings.path)
    if flags.json:
        print_json({"index": new, "stored_as": settings.stored_name, "store": settings.store})
    else:
        facts = [("in", file), ("stays", f"'{settings.stored_name}' in {settings.store}")]
        print_block(f"{old}: renamed to {new}", facts)
    return 0
