"""Every combination of history, table type and Hudi version, for `make matrix`.

A run writes its results to docs/matrix.md.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakewake.errors import TableError
from lakewake.model.plan import Action
from lakewake.sync import sync
from lakewake.verify import verify
from support import ROOT, environment
from support.hudi.histories import HISTORIES
from support.hudi.playing import COW, MOR, play
from support.hudi.tables import HudiTables, row
from support.oracle import HudiParts, built_from_nothing, following, indexed

pytestmark = [pytest.mark.spark, pytest.mark.matrix]

DOCS = ROOT / "docs" / "matrix.md"
TYPES = (COW, MOR)
CASES = [(name, type_) for name, history in HISTORIES.items() for type_ in history.types]
#: Table versions that the bundles write: 6, 8 and 9.
BUNDLES = ("0.15.0", "1.0.2", "1.1.1")
OLDER = [(f"written by {version}", type_) for version in BUNDLES for type_ in TYPES]

Results = dict[tuple[str, str], str]


MARK = "<!-- below: written by `make matrix` -->"


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    """What each case did. Afterwards, docs/matrix.md gets the cases that ran; others stay."""
    found: Results = {}
    yield found
    intro, _, lines = DOCS.read_text().partition(MARK)
    DOCS.write_text(intro + MARK + "\n\n" + as_table({**from_table(lines), **found}))


def as_table(found: Results) -> str:
    """The results as Markdown, in the order of the cases."""
    lines = ["| history | copy-on-write | merge-on-read |", "|---|---|---|"]
    for name in dict.fromkeys(name for name, _ in (*CASES, *OLDER)):
        cells = " | ".join(found.get((name, type_), "–") for type_ in TYPES)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines) + "\n"


def from_table(text: str) -> Results:
    """The inverse of `as_table`."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")][2:]
    return {
        (row[0].strip(), type_): cell.strip()
        for row in rows
        for type_, cell in zip(TYPES, row[1:], strict=True)
        if cell.strip() != "–"
    }


@pytest.mark.parametrize(("name", "type_"), CASES)
def test_the_index_equals_a_build_on_hudis_default_settings(name, type_, spark, tmp_path, results):
    results[name, type_] = "FAILED"
    results[name, type_] = did = play(HISTORIES[name], type_, spark, tmp_path)
    assert did, "no sync followed the first"


@pytest.fixture(scope="module")
def ivy(tmp_path_factory) -> Path:
    """The folder for the older bundles."""
    return tmp_path_factory.mktemp("ivy")


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("version", BUNDLES)
def test_tables_of_older_bundles_are_followed_or_refused_with_a_clear_error(
    version, type_, spark, ivy, tmp_path, results
):
    name = f"written by {version}"
    results[name, type_] = "FAILED"
    table = HudiTables(spark, tmp_path / "table", type_)
    parts = following(spark, table.path, tmp_path / "index")
    _write_older(version, ivy, table, "first")
    if version == "0.15.0":
        with pytest.raises(TableError, match="has table version 6"):
            sync(parts)
        did = ["refused"]
    else:
        did = [_synced(parts, changed=5, deleted=0)]
        _write_older(version, ivy, table, "second")
        did.append(_synced(parts, changed=2, deleted=1))
    # The newer writer upgrades the table to its own version.
    table.write([row("k4", "by the newer writer", ts=2)])
    did.append(_synced(parts))
    results[name, type_] = ", ".join(did)


def _write_older(version: str, ivy: Path, table: HudiTables, step: str) -> None:
    command = [sys.executable, "-m", "support.hudi.older_writer", version, str(ivy)]
    done = subprocess.run(
        [*command, str(table.path), table.type, step],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr[-3000:]


def _synced(parts: HudiParts, changed: int | None = None, deleted: int | None = None) -> str:
    parts.embedder.received.clear()
    report = sync(parts)
    assert indexed(parts) == built_from_nothing(parts)
    assert report.embedded == len(parts.embedder.received)
    assert changed in (None, report.rows_changed)
    assert deleted in (None, report.rows_deleted)
    assert verify(parts).agrees
    assert sync(parts).action is Action.NOTHING
    return report.action.value
