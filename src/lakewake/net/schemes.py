"""Which file systems a table may be on: tested ones, unless the user allows others."""

from __future__ import annotations

from lakewake.errors import ConfigError

#: Tables here were written, followed and verified in the tests. No scheme: a local path.
TESTED = ("s3a",)
KEY = "untested_schemes"

_BETTER = {"s3": "write it as s3a://…", "s3n": "write it as s3a://…", "file": "write it as a path"}


def refuse_untested(table: str, hint: str) -> None:
    """Refuse a table on a file system that was never tested, before anything looks at it.

    A library for such a system may wait for many minutes, or end the process. The address is not
    shown: there may be a key in it.

    Raises:
        ConfigError: it was not tested. `hint` says how to use it anyway.
    """
    scheme, mark, _ = table.partition("://")
    if mark and scheme not in TESTED:
        raise ConfigError(
            f"tables on {scheme}:// were not tested; a local path and s3a:// were",
            hint="; ".join(part for part in (_BETTER.get(scheme.lower()), hint) if part),
        )
