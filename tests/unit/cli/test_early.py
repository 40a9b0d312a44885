"""The JVM is started early only if a commit is newer than the index; nothing else is decided."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakewake.cli.early import is_behind, start_jvm_if_behind
from lakewake.config.file import load_config
from lakewake.spark import session

CONFIG = """
[[index]]
name = "wines"
table = "{table}"
store = "{store}"
text = "{{text}}"
"""


def lake(folder: Path, table: str = "lake", store: str = "lance://index") -> Path:
    """A configuration, and a table with one commit written at 100 s."""
    config = folder / "lakewake.toml"
    config.write_text(CONFIG.format(table=table, store=store))
    wrote(folder / "lake/.hoodie/timeline/20260101000000000_20260101000001000.commit", 100)
    return config


def wrote(file: Path, seconds: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    os.utime(file, (seconds, seconds))


def behind(config: Path) -> bool:
    return is_behind(load_config(config).indexes[0])


def test_a_table_without_an_index_needs_spark(tmp_path: Path) -> None:
    assert behind(lake(tmp_path))


def test_an_index_is_behind_if_a_commit_is_newer_than_its_newest_version(tmp_path: Path) -> None:
    config = lake(tmp_path)
    wrote(tmp_path / "index/wines.g1.lance/_versions/1.manifest", 50)
    assert behind(config)
    wrote(tmp_path / "index/wines.g1.lance/_versions/2.manifest", 101)
    assert not behind(config)
    wrote(tmp_path / "lake/.hoodie/timeline/20260101000002000_20260101000003000.deltacommit", 102)
    assert behind(config)


@pytest.mark.parametrize(
    "name", ["2_3.clean", "2_3.rollback", "2.commit.requested", "2.inflight", "2.savepoint"]
)
def test_what_changes_no_row_or_has_not_completed_is_not_a_commit(
    tmp_path: Path, name: str
) -> None:
    config = lake(tmp_path)
    wrote(tmp_path / "index/wines.g1.lance/_versions/1.manifest", 101)
    wrote(tmp_path / "lake/.hoodie/timeline" / name, 200)
    assert not behind(config)


@pytest.mark.parametrize(
    ("table", "store"),
    [
        ("s3a://bucket/lake", "lance://index"),
        ("lake", "lance+s3://bucket/index"),
        ("no", "memory://x"),
    ],
)
def test_nothing_is_guessed_about_other_machines_and_tables_that_are_not_there(
    tmp_path: Path, table: str, store: str
) -> None:
    assert not behind(lake(tmp_path, table, store))


def test_errors_are_left_to_the_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start_jvm_if_behind(tmp_path / "missing.toml", None)
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path / "without-a-bundle"))
    start_jvm_if_behind(lake(tmp_path), "wines")
    assert session._early is None


def test_the_guess_imports_neither_numpy_nor_pyarrow(tmp_path: Path) -> None:
    wrote(tmp_path / "index/wines.g1.lance/_versions/1.manifest", 101)
    program = (
        "import sys; from lakewake.cli import run; from lakewake.cli.early import *;"
        f"start_jvm_if_behind(Path({str(lake(tmp_path))!r}), None);"
        "print(sorted({'numpy', 'pyarrow', 'pyspark', 'lance'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
