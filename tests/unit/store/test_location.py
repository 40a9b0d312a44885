"""What an index needs from its location."""

from __future__ import annotations

import os
from pathlib import Path

from lakewake.store.location import Folder


def test_a_stamp_changes_when_a_file_is_added_removed_or_replaced(tmp_path: Path) -> None:
    location, versions = Folder(tmp_path), tmp_path / "versions"
    assert location.stamp("versions", ".manifest") == ()

    def stamp() -> object:
        return location.stamp("versions", ".manifest")

    versions.mkdir()
    assert stamp() == ()
    (versions / "2.manifest").touch()
    one = stamp()
    assert one
    (versions / "2.tmp").touch()
    assert stamp() == one
    (versions / "1.manifest").touch()
    two = stamp()
    assert two != one
    (versions / "2.manifest").unlink()
    assert stamp() not in (one, two)
    (versions / "1.manifest").unlink()
    (versions / "2.manifest").touch()
    os.utime(versions / "2.manifest", (1, 1))
    assert stamp() != one


def test_a_file_is_created_once_and_whole(tmp_path: Path) -> None:
    location = Folder(tmp_path)
    assert location.create("g1.json", b"first")
    assert not location.create("g1.json", b"second")
    assert (location.read("g1.json"), location.names()) == (b"first", ["g1.json"])


def test_names_without_a_file_are_missing(tmp_path: Path) -> None:
    location = Folder(tmp_path)
    location.replace("words/one", b"")
    assert location.missing(["words/one", "words/two", "words"]) == ["words/two", "words"]
    assert location.sees("words")
    assert not location.sees("staging")
