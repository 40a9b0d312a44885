"""Full disks, read-only or missing folders, damaged files.

Each is an error with fact, what landed and a hint; nothing false is served; the hint helps.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lakewake.errors import IndexMissing, LakewakeError, StoreError
from lakewake.model.plan import Action
from lakewake.model.query import Question, SearchResult
from lakewake.progress import Silent, Stage
from lakewake.search import search
from lakewake.store.lance.generations import pointer_text
from lakewake.sync import SyncOptions, sync
from lakewake.verify import repair, verify
from support import environment
from support.killing import ROWS, lance_parts, spoil
from support.oracle import built_from_nothing, indexed
from support.sampling import SampleParts

#: Drops root's right to write anywhere, then runs the command; no effect for other users.
WITHOUT_OVERRIDE = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
#: Smaller than any batch and any file of an index except its pointer.
FULL = 1024
#: Texts that the changed history has and the new one lacks.
CHANGED = sum(n % 7 != 0 for n in range(ROWS * 3 // 4))
REBUILD = SyncOptions(rebuild=True)


class Meddles(Silent):
    """A reporter that calls a function when a stage begins for the first time."""

    def __init__(self, stage: str, deed: Callable[[], None]) -> None:
        self._stage, self._deed = stage, deed
        self.said: list[str] = []

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        """Call the function, then run the stage."""
        if name == self._stage:
            self._stage = ""
            self._deed()
        with super().stage(name, total) as stage:
            yield stage

    def say(self, text: str) -> None:
        """Keep the message."""
        self.said.append(text)


def fill_the_disk() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL, FULL))


def sync_and_report(folder: str, history: str, full_at: str) -> None:
    """Sync in a separate process, and print its error as JSON."""
    parts = replace(lance_parts(Path(folder), history), reporter=Meddles(full_at, fill_the_disk))
    outcome: dict[str, object] = {"writable": os.access(folder, os.W_OK)}
    try:
        sync(parts)
    except LakewakeError as error:
        outcome |= error.as_dict()
    try:
        outcome["found"] = [hit.key for hit in ask(parts, "text number 3").hits]
    except LakewakeError as error:
        outcome["found"] = type(error).__name__
    print(json.dumps(outcome))


def outcome(folder: Path, history: str, full_at: str = "", *by: str) -> dict[str, str]:
    """The output of `sync_and_report`."""
    ran = subprocess.run(
        [*by, sys.executable, __file__, str(folder), history, full_at],
        env=environment(TMPDIR=str(folder.parent / "tmp")),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def ask(parts: SampleParts, text: str, k: int = 1) -> SearchResult:
    reader = parts.store.open()
    if reader is None:
        raise IndexMissing("there is none")
    return search(reader, parts.embedder, Question("sample", text, k=k))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for an index, with one for temporary files beside it."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


def check_recovered(parts: SampleParts, options: SyncOptions, *, embedded: int = 0) -> None:
    """Sync once, and check that the index equals the table."""
    parts.embedder.received.clear()
    report = sync(parts, options)
    assert report.embedded == len(parts.embedder.received) == embedded
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees
    assert ask(parts, "text number 239").hits[0].key == "k239"


def test_a_full_disk_under_the_batch_lands_nothing_and_names_the_location(folder):
    said = outcome(folder, "new", full_at="embed")
    assert (said["error"], said["landed"]) == ("StoreError", "nothing was written")
    assert f"cannot write the batch to {folder.parent / 'tmp'}" in said["fact"]
    assert "TMPDIR" in said["hint"]
    assert said["found"] == "IndexMissing"
    assert list((folder.parent / "tmp").iterdir()) == []
    check_recovered(lance_parts(folder, "new"), SyncOptions(), embedded=ROWS)


@pytest.mark.parametrize("history", ["new", "changed", "archived"])
def test_a_full_disk_under_the_index_changes_nothing(history, folder):
    if history != "new":
        sync(lance_parts(folder, "new"))
    said = outcome(folder, history, full_at="write")
    assert (said["error"], said["landed"]) == ("StoreError", "nothing was written")
    assert "cannot be written" in said["fact"]
    assert "the disk has room" in said["hint"]
    assert said["found"] == ("IndexMissing" if history == "new" else ["k3"])
    assert list((folder.parent / "tmp").iterdir()) == []
    check_recovered(lance_parts(folder, history), SyncOptions())


def test_a_read_only_store_serves_its_old_version_until_it_is_writable(folder):
    sync(lance_parts(folder, "new"))
    inside = [folder, *folder.rglob("*")]
    for path in inside:
        path.chmod(0o555)
    try:
        said = outcome(folder, "changed", "", sys.executable, "-c", WITHOUT_OVERRIDE)
    finally:
        for path in inside:
            path.chmod(0o755)
    if said["writable"]:
        pytest.skip("this user may write anywhere")
    assert (said["error"], said["landed"]) == ("StoreError", "nothing was written")
    assert "cannot be written" in said["fact"]
    assert "writable" in said["hint"]
    assert said["found"] == ["k3"]
    # The vectors could not be kept either.
    check_recovered(lance_parts(folder, "changed"), SyncOptions(), embedded=CHANGED)


@pytest.mark.parametrize("stage", ["read", "embed", "write"])
def test_a_folder_deleted_while_a_sync_runs_is_built_again_by_that_sync(stage, folder):
    sync(lance_parts(folder, "new"))
    parts = lance_parts(folder, "changed")
    report = sync(replace(parts, reporter=Meddles(stage, lambda: shutil.rmtree(folder))))
    assert report.action is Action.BUILD
    assert report.embedded == len(parts.embedder.received)
    assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees


def test_a_dataset_deleted_beside_its_pointer_is_reported_and_rebuilt(folder):
    parts = lance_parts(folder, "new")
    sync(parts)
    shutil.rmtree(folder / "sample.g1.lance")
    for attempt in (lambda: ask(parts, "text number 3"), lambda: sync(parts)):
        with pytest.raises(StoreError, match="is gone") as caught:
            attempt()
        assert "lakewake sync sample --rebuild" in caught.value.hint
    check_recovered(parts, REBUILD)


def data_file(folder: Path) -> Path:
    (file,) = (folder / "sample.g1.lance" / "data").rglob("*.lance")
    return file


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def garble(file: Path) -> None:
    file.write_bytes(random.Random(3).randbytes(file.stat().st_size))


@pytest.mark.parametrize(
    ("damage", "pattern"),
    [
        (cut, "data/*.lance"),
        (garble, "data/*.lance"),
        (Path.unlink, "data/*.lance"),
        (cut, "_versions/*.manifest"),
        (garble, "_versions/*.manifest"),
    ],
)
def test_a_damaged_file_of_an_index_is_reported_and_rebuilt(damage, pattern, folder):
    sync(lance_parts(folder, "new"))
    (file,) = (folder / "sample.g1.lance").glob(pattern)
    damage(file)
    parts = lance_parts(folder, "new")
    for attempt in (lambda: ask(parts, "text number 3"), lambda: sync(parts)):
        with pytest.raises(StoreError, match="'sample' cannot be") as caught:
            attempt()
        assert caught.value.landed == "nothing was written"
        assert "lakewake sync sample --rebuild" in caught.value.hint
    check_recovered(parts, REBUILD)


def test_damaged_bytes_never_serve_a_false_text_and_a_rebuild_recovers(folder):
    sync(lance_parts(folder, "new"))
    sound, dice, hints = data_file(folder).read_bytes(), random.Random(5), set()
    for _ in range(12):
        shutil.rmtree(folder)
        sync(lance_parts(folder, "new"))
        damaged = bytearray(sound)
        at = dice.randrange(len(sound) - 16)
        damaged[at : at + 16] = dice.randbytes(16)
        data_file(folder).write_bytes(damaged)
        parts = lance_parts(folder, "new")
        try:
            hits = ask(parts, "text number 3", k=ROWS).hits
        except StoreError as error:
            hits, hints = (), {*hints, error.hint}
        assert all(hit.text == f"text number {hit.key[1:]}" for hit in hits)
        check_recovered(parts, REBUILD)
    assert hints
    assert all("`lakewake sync sample --rebuild`" in hint for hint in hints)


def test_a_text_that_does_not_match_its_hash_is_not_served(folder):
    parts = lance_parts(folder, "new")
    sync(parts)
    spoil(folder)
    for question in ("forged", "text number 1"):
        with pytest.raises(StoreError, match="contradicts itself") as caught:
            ask(parts, question, k=ROWS)
        assert "verify sample --repair" in caught.value.hint
    assert repair(parts).agrees
    assert ask(parts, "text number 1").hits[0].key == "k1"


def test_a_damaged_vector_is_not_carried_into_a_rebuild(folder):
    parts = lance_parts(folder, "new")
    sync(parts)
    spoil(folder)
    check_recovered(parts, REBUILD)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\x00" * 60, b'{"format": 1, "generation": 7, "dataset": "other"}']
)
def test_a_damaged_pointer_is_reported_and_rebuilt(content, folder):
    parts = lance_parts(folder, "new")
    sync(parts)
    pointer = folder / "sample.json"
    pointer.write_bytes(content)
    for attempt in (lambda: ask(parts, "text number 3"), lambda: sync(parts)):
        with pytest.raises(StoreError, match="does not name a generation") as caught:
            attempt()
        assert str(pointer) in caught.value.hint
    assert pointer.read_bytes() == content
    check_recovered(parts, REBUILD)
    assert pointer.read_bytes() == pointer_text("sample", 2)


def test_removing_a_damaged_pointer_as_the_hint_says_restores_the_index(folder):
    parts = lance_parts(folder, "new")
    sync(parts)
    pointer = folder / "sample.json"
    pointer.write_bytes(b"{")
    fresh = lance_parts(folder, "new")
    with pytest.raises(StoreError, match="does not name a generation") as refused:
        ask(fresh, "text number 3")
    assert refused.value.hint.startswith(f"remove {pointer};")
    pointer.unlink()
    assert ask(parts, "text number 3").hits[0].key == "k3"
    assert sync(parts).action is Action.NOTHING


def test_a_damaged_vector_cache_costs_only_time(folder):
    (folder / "embeddings.sqlite").write_bytes(b"no database" * 1000)
    parts, said = lance_parts(folder, "new"), []
    parts.vector_cache._say = said.append  # type: ignore[attr-defined]
    check_recovered(parts, SyncOptions(), embedded=ROWS)
    assert len(said) == 1


if __name__ == "__main__":
    sync_and_report(*sys.argv[1:])
