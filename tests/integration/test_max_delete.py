"""Real tables that lose most of their rows under a watch: it refuses, reports it and goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakewake
from lakewake.errors import TooManyDeletes
from lakewake.sync.watch import watch
from support.hudi import SAMPLE_CONFIG
from support.hudi.tables import HudiTables, row
from support.oracle import built_from_nothing, indexed

pytestmark = pytest.mark.spark

ROWS = 1_100


def test_a_watch_refuses_a_table_that_lost_most_rows_and_goes_on_once_deletes_are_allowed(
    spark: Any, small_tables: dict[str, str], tmp_path: Path
) -> None:
    table = HudiTables(spark, tmp_path / "table", options=small_tables)
    table.write([*(row(f"k{n}") for n in range(ROWS)), row("other", part="b")])
    (tmp_path / "lakewake.toml").write_text(SAMPLE_CONFIG)
    said: list[str] = []
    with lakewake.open(tmp_path / "lakewake.toml", spark=spark) as lake:
        index = lake["sample"]
        index.sync()

        def refused() -> str:
            """The messages of one round of a watch; the index must stay unchanged."""
            before = indexed(index.parts)
            watch(
                {"sample": index.sync},
                interval=5,
                wait=lambda _: True,
                say=said.append,
                show=lambda reports: pytest.fail(f"{reports}"),
            )
            assert indexed(index.parts) == before
            assert f"{ROWS:,} of the {ROWS + 1:,} rows" in index.plan().refused
            return said.pop()

        table.delete_partition("a")
        line = refused()
        assert f"would remove {ROWS:,} of the {ROWS + 1:,} rows" in line
        assert "nothing was written; next try in 10 s" in line
        assert "--allow-deletes" in line
        assert index.sync(allow_deletes=True).rows_deleted == ROWS
        assert indexed(index.parts) == built_from_nothing(index.parts)

        table.write([row(f"k{n}") for n in range(ROWS)])
        index.sync()
        table.drop()
        table.write([row(f"new{n}") for n in range(3)], mode="overwrite")
        with pytest.raises(TooManyDeletes):
            index.sync(rebuild=True)
        with pytest.raises(TooManyDeletes, match=f"{ROWS + 1:,} of the {ROWS + 1:,} rows"):
            index.sync()
        index.sync(allow_deletes=True)
        assert indexed(index.parts) == built_from_nothing(index.parts)
