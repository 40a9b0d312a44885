"""Where model files are looked for, and how their hashes are checked."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from lakewake.config.home import lakewake_home
from lakewake.config.settings import ModelSettings
from lakewake.embed.folder import builtin_model, find_model
from lakewake.embed.minilm import build_graph
from lakewake.embed.onnx import OnnxEmbedder
from lakewake.embed.weights import GRAPHS, PINNED, check_minilm, file_sha256, minilm_folder
from lakewake.errors import SetupError


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def overwrite_unseen(path: Path, data: bytes) -> None:
    """Write other bytes of the same size, and keep the modification time."""
    stat = path.stat()
    assert stat.st_size == len(data)
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_home_is_lakewake_home_when_set(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path / "here"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not-here"))
    assert lakewake_home() == tmp_path / "here"


def test_home_is_under_the_cache_folder_of_the_desktop(monkeypatch, tmp_path):
    monkeypatch.delenv("LAKEWAKE_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert lakewake_home() == tmp_path / "lakewake"


def test_home_is_under_the_users_cache_otherwise(monkeypatch, tmp_path):
    monkeypatch.delenv("LAKEWAKE_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert lakewake_home() == tmp_path / ".cache" / "lakewake"


def test_the_model_is_looked_for_in_home(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path))
    assert minilm_folder() == tmp_path / "models" / "all-MiniLM-L6-v2"


def test_missing_files_name_the_command_that_fetches_them(tmp_path):
    with pytest.raises(SetupError) as caught:
        check_minilm(tmp_path)
    assert "model.safetensors" in caught.value.fact
    assert "lakewake setup" in caught.value.hint


def test_a_file_with_another_hash_is_named_with_both_hashes(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"something else")
    with pytest.raises(SetupError) as caught:
        check_minilm(tmp_path)
    assert "model.safetensors" in caught.value.fact
    assert sha256(b"something else")[:12] in caught.value.fact
    assert PINNED["model.safetensors"][:12] in caught.value.fact


def test_files_with_the_pinned_hashes_pass_the_check(monkeypatch, tmp_path):
    for name in PINNED:
        (tmp_path / name).write_bytes(name.encode())
        monkeypatch.setitem(PINNED, name, sha256(name.encode()))
    check_minilm(tmp_path)


def test_a_hash_is_computed_from_the_content_whatever_size_time_and_notes_say(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"first")
    stat = file.stat()
    note = {"size": 5, "mtime_ns": stat.st_mtime_ns, "sha256": sha256(b"first")}
    (tmp_path / ".weights.sha256.json").write_text(json.dumps(note))
    overwrite_unseen(file, b"other")
    assert file_sha256(file) == sha256(b"other")


def forge(folder: Path, name: str, content: bytes) -> None:
    """Put another file under a model's name, with a note beside it that vouches for it."""
    file = folder / name
    file.unlink(missing_ok=True)
    file.write_bytes(content)
    stat = file.stat()
    note = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": PINNED[name]}
    (folder / f".{name}.sha256.json").write_text(json.dumps(note))


@pytest.fixture
def forgeable(monkeypatch, tmp_path):
    """The built-in model's folder, in a separate home."""
    real = minilm_folder()
    OnnxEmbedder(ModelSettings()).embed(["built at the latest now"])
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path))
    folder = minilm_folder()
    folder.mkdir(parents=True)
    for file in real.iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file)
    return folder


@pytest.mark.parametrize("name", sorted(PINNED))
def test_a_forged_file_is_refused_though_a_note_vouches_for_it(forgeable, name):
    forge(forgeable, name, b"13 bytes only")
    for check in (
        lambda: check_minilm(forgeable),
        lambda: OnnxEmbedder(ModelSettings()).embed(["text"]),
    ):
        with pytest.raises(SetupError, match=name) as caught:
            check()
        assert "lakewake setup" in caught.value.hint


def test_a_forged_tokenizer_of_the_right_size_is_refused(forgeable):
    real = (forgeable / "tokenizer.json").read_bytes()
    forge(forgeable, "tokenizer.json", real.replace(b'"wine"', b'"vine"', 1))
    with pytest.raises(SetupError, match=r"tokenizer.json is not the file"):
        OnnxEmbedder(ModelSettings()).embed(["text"])


def test_forged_weights_of_the_right_size_are_refused(forgeable):
    for graph in forgeable.glob("lakewake-*.onnx"):
        graph.unlink()
    real = (forgeable / "model.safetensors").read_bytes()
    forge(forgeable, "model.safetensors", real[:-4] + b"evil")
    with pytest.raises(SetupError, match="is not the file it should be"):
        OnnxEmbedder(ModelSettings()).embed(["text"])
    assert not list(forgeable.glob("lakewake-*.onnx"))


def test_a_forged_graph_is_not_loaded_but_built_again(forgeable):
    (path,) = forgeable.glob("lakewake-fp32-*.onnx")
    before = OnnxEmbedder(ModelSettings()).embed(["red wine"])
    real = path.read_bytes()
    for forged in (b"13 bytes only", real[:-4] + b"evil"):
        for graph in forgeable.glob("lakewake-fp32-*.onnx"):
            graph.unlink()
        # Under the name of an older version, and under a name that vouches for itself.
        path.write_bytes(forged)
        path.with_name(f"{path.stem[:30]}-{sha256(forged)}.onnx").write_bytes(forged)
        assert np.array_equal(OnnxEmbedder(ModelSettings()).embed(["red wine"]), before)


def test_a_copy_of_the_built_in_model_loads_its_pinned_graph(forgeable):
    (path,) = forgeable.glob("lakewake-fp32-*.onnx")
    assert find_model(str(forgeable), "fp32").graph("fp32") == str(path)
    path.unlink()
    path.write_bytes(b"13 bytes only")
    built = find_model(str(forgeable), "fp32").graph("fp32")
    assert file_sha256(Path(str(built))) == GRAPHS["fp32"]


@pytest.mark.parametrize("precision", sorted(GRAPHS))
def test_the_pinned_graph_is_the_one_that_is_built(precision):
    model = builtin_model()
    graph = build_graph(model.read_tensors(precision), model.architecture, precision)
    assert sha256(graph) == GRAPHS[precision]
