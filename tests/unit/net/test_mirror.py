"""The mirror of the model and the jars: a folder, or a server on this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from lakewake.embed.weights import OTHERS, PINNED, check_minilm, fetch_minilm, minilm_folder
from lakewake.errors import ConfigError, SetupError
from lakewake.net.mirror import VARIABLE, Mirror, find_mirror
from lakewake.setup import Jars, ensure_jars
from lakewake.spark.jars import jar_path
from lakewake.spark.java import Java
from support.http_server import listening

NO_JAVA = Java(Path("/nowhere"), "17", "test")
FIRST, SECOND = "org.x:one:1.0", "org.x:two:2.0"
SHELF = {"one-1.0.jar": b"one", "two-2.0.jar": b"two"}


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A mirror with two jars and the model."""
    folder = tmp_path / "shelf"
    (folder / "jars").mkdir(parents=True)
    for name, content in SHELF.items():
        (folder / "jars" / name).write_bytes(content)
    (folder / "models").mkdir()
    (folder / "models" / minilm_folder().name).symlink_to(minilm_folder())
    return folder


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def address(shelf: Path, asked: list[str]) -> Iterator[str]:
    class Handler(SimpleHTTPRequestHandler):
        def log_request(self, code="-", size="-"):
            asked.append(self.path)

        def log_message(self, *args):
            pass

    with listening(partial(Handler, directory=str(shelf))) as port:  # type: ignore[arg-type]
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shelf: Path) -> Path:
    """An empty `LAKEWAKE_HOME`, and no package index to fall back on."""
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path / "home"))
    for tool in ("PIP", "UV"):
        monkeypatch.setenv(f"{tool}_NO_INDEX", "1")
    return tmp_path / "home"


def jars(second: bytes = b"two") -> Jars:
    contents = {FIRST: b"one", SECOND: second}
    return Jars("jars", "6 B", {c: hashlib.sha256(b).hexdigest() for c, b in contents.items()})


def say(text: str) -> None:
    """Say nothing."""


def test_jars_come_from_a_mirror_on_the_web(home, address, asked, monkeypatch):
    monkeypatch.setenv(VARIABLE, address + "/")
    assert ensure_jars(jars(), NO_JAVA, say).read_bytes() == b"one"
    assert jar_path(SECOND).read_bytes() == b"two"
    assert asked == ["/jars/one-1.0.jar", "/jars/two-2.0.jar"]


def test_the_model_comes_from_a_mirror_on_the_web(home, address, asked, monkeypatch):
    monkeypatch.setenv(VARIABLE, address)
    fetch_minilm(minilm_folder(), say)
    check_minilm(minilm_folder())
    assert (minilm_folder() / "config.json").is_file()
    assert len(asked) == len(PINNED) + len(OTHERS)


def test_the_model_comes_from_a_folder(home, shelf, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(shelf))
    fetch_minilm(minilm_folder(), say)
    check_minilm(minilm_folder())


def test_another_file_under_a_jar_s_name_is_refused_and_none_lands(home, address, monkeypatch):
    monkeypatch.setenv(VARIABLE, address)
    with pytest.raises(SetupError, match="wrong sha256") as caught:
        ensure_jars(jars(second=b"other"), NO_JAVA, say)
    assert VARIABLE in caught.value.hint
    assert not jar_path(SECOND).exists()
    assert not list(home.rglob(".fetch-*"))


def test_a_damaged_model_is_refused_and_nothing_lands(home, shelf, monkeypatch):
    folder = shelf / "models" / minilm_folder().name
    folder.unlink()
    folder.mkdir()
    for name in PINNED:
        (folder / name).write_bytes(b"damaged")
    monkeypatch.setenv(VARIABLE, str(shelf))
    with pytest.raises(SetupError, match="does not hold the expected files"):
        fetch_minilm(minilm_folder(), say)
    assert not any(minilm_folder().rglob("*.safetensors"))


def test_a_file_that_the_mirror_lacks_is_named(home, address, shelf, monkeypatch):
    monkeypatch.setenv(VARIABLE, address)
    (shelf / "jars" / "two-2.0.jar").unlink()
    with pytest.raises(SetupError, match=r"has no jars/two-2\.0\.jar") as caught:
        ensure_jars(jars(), NO_JAVA, say)
    assert "lakewake setup" in caught.value.hint


def test_a_mirror_that_does_not_answer_is_named_without_its_password(tmp_path):
    mirror = Mirror("http://reader:hunter2@127.0.0.1:9/files")
    with pytest.raises(SetupError, match=r"the mirror http://127\.0\.0\.1:9/files") as caught:
        mirror.fetch("jars/x.jar", tmp_path / "x.jar")
    assert "hunter2" not in str(caught.value)


def test_a_mirror_elsewhere_than_on_the_web_or_in_a_folder_is_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, "s3://bucket/files")
    with pytest.raises(ConfigError, match=r"begins with s3://"):
        find_mirror()


def test_no_mirror_is_used_unless_one_is_set(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_mirror() is None
    monkeypatch.setenv(VARIABLE, " ")
    assert find_mirror() is None
