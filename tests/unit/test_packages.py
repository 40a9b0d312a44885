"""The wheel and the source distribution: built, installed and started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import lakewake
from support import ROOT

#: `make` calls Python without its environment's programs on the path.
UV = str(shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"))
#: What a build needs of the checkout.
SOURCES = ("src", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    checkout, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        copy = ["cp", "-r", str(ROOT / name), str(checkout / name)]
        subprocess.run(copy, check=True)
    # With the setuptools that is installed, so that nothing is fetched.
    command = [UV, "build", "--quiet", "--offline", "--no-build-isolation", "--python"]
    done = subprocess.run(
        [*command, sys.executable, "--out-dir", str(out), str(checkout)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return out


def install(built: Path, target: Path, python: str = sys.executable):
    (wheel,) = built.glob("*.whl")
    command = [UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python]
    return subprocess.run(
        [*command, "--target", str(target), str(wheel)], capture_output=True, text=True
    )


def test_the_wheel_holds_every_module_and_file_of_the_package(built):
    (wheel,) = built.glob("*.whl")
    package = Path(lakewake.__file__).parent
    kept = {"__pycache__"}
    ours = {
        str(p.relative_to(package.parent))
        for p in package.rglob("*")
        if p.is_file() and not kept & set(p.parts)
    }
    with zipfile.ZipFile(wheel) as opened:
        inside = {n for n in opened.namelist() if n.startswith("lakewake/")}
    assert inside == ours


def test_the_source_distribution_holds_what_a_build_needs(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {n.partition("/")[2] for n in opened.getnames()}
    assert {*SOURCES, "src/lakewake/serve/page/index.html"} <= names


def test_the_installed_wheel_runs_commands(built, tmp_path):
    done = install(built, tmp_path / "there")
    assert done.returncode == 0, done.stderr
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "there")}
    command = "import lakewake, sys; print(lakewake.__file__, lakewake.__version__)"
    where = subprocess.run(
        [sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert where.startswith(str(tmp_path / "there"))
    started = subprocess.run(
        [sys.executable, "-m", "lakewake", "--version"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert started.stdout.strip() == f"lakewake {lakewake.__version__}"
    assert (tmp_path / "there" / "bin" / "lakewake").is_file()


def test_the_wheel_names_the_pythons_that_pip_may_install_it_for(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (n for n in opened.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = opened.read(name).decode()
    assert "\nRequires-Python: <3.13,>=3.11\n" in metadata
