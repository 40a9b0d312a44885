"""A store of another package is found by its entry point, and proves itself by lakewake.testing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lakewake.errors import ConfigError, SetupError
from lakewake.store.registry import open_store
from support import ROOT

GUIDE = (ROOT / "docs" / "stores.md").read_text()
ENTRY = re.search(r'entry-points\."(.+)"\]\n(\w+) = "(.+)"', GUIDE)
USE = """
from lakewake.config.index import read_store
from lakewake.config.section import Section
from lakewake.model.ann import Ann
from lakewake.errors import ConfigError
from lakewake.store.options import StoreOptions
from lakewake.store.registry import open_store
from lakewake.testing import batch, chunk, frontier, recipe
from pathlib import Path
url = read_store(Section("index", {"store": "sqlite://index.db"}), Path("."))
open_store(url, "wines").create(recipe(), batch(chunk("a")), frontier(1), after=0)
assert open_store(url, "wines").open().counts() == (1, 1)
try:
    open_store(url, "wines", StoreOptions(ann=Ann("hnsw")))
except ConfigError as error:
    assert error.hint.endswith("are auto, flat"), error.hint
else:
    raise AssertionError
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder in which the example of the documentation is installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copy(ROOT / "examples" / "sqlite_store.py", folder)
    installed(folder, ENTRY[2], ENTRY[3])
    return folder


def installed(folder: Path, scheme: str, what: str) -> None:
    """Describe a package as installers do."""
    described = folder / "somebodys_store-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-store\n")
    (described / "entry_points.txt").write_text(f"[{ENTRY[1]}]\n{scheme} = {what}\n")


def run(package: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python elsewhere, without this repository's tests."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
    )


def test_the_example_of_the_documentation_proves_itself(package: Path, tmp_path: Path):
    [snippet] = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "test_sqlite.py").write_text(snippet)
    plain = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path))
    done = run(package, tmp_path, *plain, "test_sqlite.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 90
    assert "failed" not in done.stdout
    assert "skipped" not in done.stdout


def test_a_store_that_breaks_a_promise_does_not_pass(package: Path, tmp_path: Path):
    [snippet] = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    broken = (package / "sqlite_store.py").read_text()
    check = "if last.absorbed.to_json() != expect.to_json():"
    assert check in broken
    (package / "sqlite_store.py").write_text(broken.replace(check, "if False:"))
    (tmp_path / "test_sqlite.py").write_text(snippet)
    done = run(package, tmp_path, "-m", "pytest", "-q", "-k", "frontier", "test_sqlite.py")
    assert done.returncode == 1
    failed = re.findall(r"FAILED \S+::(\w+)", done.stdout)
    assert "test_a_commit_that_expects_an_older_frontier_lands_nothing" in failed
    # The values of the assertion are shown.
    assert "DID NOT RAISE" in done.stdout


def test_an_installed_store_is_opened_by_its_scheme(package: Path, tmp_path: Path):
    done = run(package, tmp_path, "-c", USE)
    assert done.returncode == 0, done.stderr


def test_the_error_about_an_unknown_scheme_lists_installed_stores(
    package: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(package)
    with pytest.raises(ConfigError) as refused:
        open_store("sqlight://index.db", "wines")
    assert "sqlite://…" in refused.value.hint
    assert "lance://…" in refused.value.hint


@pytest.mark.parametrize("what", ["sqlite_store:nothing", "no_such_module:open", "sqlite_store:1"])
def test_a_store_that_cannot_be_loaded_is_reported_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
):
    installed(tmp_path, "broken", what)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SetupError, match="of package somebodys-store cannot be loaded") as refused:
        open_store("broken://here", "wines")
    assert "install somebodys-store again" in refused.value.hint


def test_a_plug_in_cannot_replace_a_store_of_ours(tmp_path: Path, monkeypatch):
    installed(tmp_path, "lance", "no_such_module:open")
    monkeypatch.syspath_prepend(tmp_path)
    assert open_store(f"lance://{tmp_path}/index", "wines").open() is None
