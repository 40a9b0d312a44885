"""Where model files are looked for, and how their hashes are checked."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from lakewake.embed.weights import PINNED, check_minilm, file_sha256, minilm_folder
from lakewake.errors import SetupError
from lakewake.home import lakewake_home


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def overwrite_unseen(path: Path, data: bytes) -> None:
    """Other bytes, same size and time of change."""
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


def test_the_files_that_setup_fetched_pass_the_check():
    check_minilm(minilm_folder())


def test_a_hash_is_not_computed_again_while_the_file_stays(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"first")
    assert file_sha256(file) == sha256(b"first")
    overwrite_unseen(file, b"other")
    assert file_sha256(file) == sha256(b"first")


def test_a_hash_is_computed_again_when_the_time_of_change_differs(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"first")
    file_sha256(file)
    overwrite_unseen(file, b"other")
    os.utime(file, ns=(1, 1))
    assert file_sha256(file) == sha256(b"other")


def test_a_hash_is_computed_again_when_the_size_differs(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"first")
    file_sha256(file)
    mtime = file.stat().st_mtime_ns
    file.write_bytes(b"longer than before")
    os.utime(file, ns=(mtime, mtime))
    assert file_sha256(file) == sha256(b"longer than before")


@pytest.mark.parametrize("note", [b"", b"[]", b'{"sha256": 1}', b"\xff"])
def test_a_note_that_cannot_be_used_is_written_anew(tmp_path, note):
    file = tmp_path / "weights"
    file.write_bytes(b"first")
    (tmp_path / ".weights.sha256.json").write_bytes(note)
    assert file_sha256(file) == sha256(b"first")
    assert sha256(b"first").encode() in (tmp_path / ".weights.sha256.json").read_bytes()


def test_a_note_that_cannot_be_written_does_not_stop_the_check(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"first")
    (tmp_path / ".weights.sha256.json").mkdir()
    assert file_sha256(file) == sha256(b"first")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".weights.sha256.json", "weights"]
