"""Write to a table with an older Hudi bundle, in a separate process and JVM.

`python -m support.hudi.older_writer VERSION IVY_FOLDER TABLE TYPE STEP`
"""

from __future__ import annotations

import sys
from pathlib import Path

from lakewake.spark.session import start_session
from support.hudi.tables import HudiTables, row

BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12"


def first(table: HudiTables) -> None:
    """Write six rows, update one and delete one: four texts as written, one new."""
    table.write([row(f"k{n}", part="ab"[n % 2]) for n in range(6)])
    table.write([row("k0", "changed", ts=2)])
    table.delete("k2")


def second(table: HudiTables) -> None:
    """Add one row, change one, delete one."""
    table.write([row("n1", "new", part="c"), row("k1", "changed too", part="b", ts=2)])
    table.delete("k3", part="b")


STEPS = {"first": first, "second": second}

if __name__ == "__main__":
    version, ivy, path, type_, step = sys.argv[1:]
    session = start_session(
        {"spark.jars.packages": f"{BUNDLE}:{version}", "spark.jars.ivy": ivy}, verbose=True
    )
    STEPS[step](HudiTables(session, Path(path), type_))
