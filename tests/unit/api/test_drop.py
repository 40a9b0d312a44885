"""`Index.drop` and `lakewake drop`: everything of an index goes, and nothing else."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import lakewake
from lakewake.cli import run
from lakewake.errors import ConfigError, IndexDropped, IndexMissing
from lakewake.history.log import open_history
from lakewake.model.history import SyncRecord
from lakewake.store.hints import dropped
from lakewake.store.lance.generations import DROPPED
from lakewake.store.memory import MemoryStore
from lakewake.sync import sync
from support.cellar import CONFIG, WINES, build, make_cellar
from support.sampling import rid, sample_parts, values

SECOND = """
[[index]]
name  = "others"
table = "lake/wines"
text  = "{description}"
store = "lance://index"
model = {provider = "hashing", dimension = 64}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """An index with a history, beside another index and files that are not ours."""
    path = make_cellar(tmp_path)
    with lakewake.open(path) as lake:
        index = lake["wines"]
        failure = SyncRecord.of_failure("wines", ConfigError("odd"), 1.0, FIRST_TIME)
        open_history(index.settings, tmp_path).append(failure)
    return path


FIRST_TIME = datetime.datetime(2025, 3, 1, tzinfo=datetime.UTC)


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_only_marks_stay_of_a_dropped_index(config: Path) -> None:
    folder = config.parent / "index"
    with lakewake.open(config) as lake:
        report = lake["wines"].drop()
        assert str(folder / "wines.g1.lance") in report.removed
        assert str(folder / "wines.json") in report.removed
        assert str(folder / "wines.history") in report.removed
        with pytest.raises(IndexMissing):
            lake["wines"].search("smoky")
        assert lake["wines"].history() == ()
        assert not lake["wines"].describe().built
    marks = {f"wines.g{n}.lance/_versions/{DROPPED}" for n in (1, 2)}
    assert files(folder) == marks
    assert {str(Path(m).relative_to(folder)) for m in report.marks} == marks
    assert lakewake.find_indexes(str(folder)) == ()


def test_it_is_dropped_without_its_table_and_its_model(config: Path) -> None:
    shutil.rmtree(config.parent / "lake")
    config.write_text(
        config.read_text().replace('provider = "hashing"', 'provider = "onnx", name = "/no"')
    )
    with lakewake.open(config) as lake:
        assert lake["wines"].drop().removed
        assert not lake["wines"].describe().built


@pytest.mark.parametrize("damaged", ["wines.json", "wines.g1.lance/_versions"])
def test_a_damaged_index_is_dropped(config: Path, damaged: str) -> None:
    path = config.parent / "index" / damaged
    for file in [path] if path.is_file() else path.iterdir():
        file.write_bytes(b"{}")
    with lakewake.open(config) as lake:
        assert lake["wines"].drop().removed
        assert not lake["wines"].describe().built
    assert all(name.endswith(DROPPED) for name in files(config.parent / "index"))


def test_what_is_not_ours_stays_and_is_named(config: Path) -> None:
    folder = config.parent / "index"
    ours = files(folder)
    strange = {
        *("wines.notes.txt", "wines.g1.lance/README", "wines.history/readme.md", "winesky.json"),
        "wines.g7.lance",
    }
    for name in strange:
        (folder / name).write_text("mine")
    with lakewake.open(config) as lake:
        report = lake["wines"].drop()
    kept = files(folder)
    assert strange <= kept
    assert {n for n in kept - strange if not n.endswith(DROPPED)} == set()
    assert ours
    # The folder may hold anything; only what looks like the index's is named.
    assert {str(Path(f).relative_to(folder)) for f in report.foreign} == strange - {"winesky.json"}


def test_somebody_elses_dataset_and_json_file_stay(tmp_path: Path) -> None:
    import lance
    import pyarrow as pa

    (tmp_path / "index").mkdir()
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "index" / "wines.g1.lance")
    (tmp_path / "index" / "wines.json").write_text('{"wines": []}')
    before = files(tmp_path / "index")
    (tmp_path / "lakewake.toml").write_text(CONFIG.replace("CHUNK", '"whole"'))
    with lakewake.open(tmp_path / "lakewake.toml") as lake:
        report = lake["wines"].drop()
    assert report.removed == ()
    assert files(tmp_path / "index") == before
    assert {Path(f).name for f in report.foreign} == {"wines.g1.lance", "wines.json"}


def test_a_drop_that_was_cut_off_is_finished_by_the_next(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakewake.store.location import Folder

    folder = config.parent / "index"
    remove = Folder.remove

    def cut_off_after(calls: int) -> Callable[[Folder, str], None]:
        left = iter(range(calls))

        def run(self: Folder, name: str) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            remove(self, name)

        return run

    for calls in (0, 1):
        monkeypatch.setattr(Folder, "remove", cut_off_after(calls))
        with lakewake.open(config) as lake, pytest.raises(KeyboardInterrupt):
            lake["wines"].drop()
        with lakewake.open(config) as lake:
            assert not lake["wines"].describe().built
    monkeypatch.setattr(Folder, "remove", remove)
    with lakewake.open(config) as lake:
        lake["wines"].drop()
    assert all(name.endswith(DROPPED) for name in files(folder))


def test_a_generation_that_a_late_writer_completes_is_not_an_index(config: Path) -> None:
    folder = config.parent / "index"
    shutil.copytree(folder, config.parent / "copy")
    with lakewake.open(config) as lake:
        lake["wines"].drop()
        # All that a late writer could leave: the whole generation, and the file that names it.
        shutil.copytree(config.parent / "copy", folder, dirs_exist_ok=True)
        assert not lake["wines"].describe().built
        build(lake["wines"])
        assert lake["wines"].describe().generation == 3
        assert lake["wines"].describe().rows == len(WINES)
        lake["wines"].parts.store.maintain()
    assert {p.name for p in folder.glob("*.lance")} == {"wines.g3.lance"}


def test_the_vector_cache_stays_with_the_names_of_those_who_use_it(config: Path) -> None:
    folder = config.parent / "index"
    other = SECOND.replace("others", "different").replace("64", "32")
    config.write_text(config.read_text() + SECOND + other)
    (folder / "embeddings.sqlite").write_bytes(b"")
    with lakewake.open(config) as lake:
        report = lake["wines"].drop()
    assert report.vector_cache == str(folder / "embeddings.sqlite")
    assert report.shared_with == ("others",)
    assert (folder / "embeddings.sqlite").exists()
    assert report.foreign == ()


def test_an_index_opened_by_its_address_is_not_dropped(config: Path) -> None:
    with (
        lakewake.open_index(f"lance://{config.parent}/index/wines") as index,
        pytest.raises(ConfigError, match="cannot be dropped without its configuration"),
    ):
        index.drop()


def test_the_command_asks_and_does_nothing_without_a_terminal(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(config.parent / "index")
    assert run(["drop", "wines", "-c", str(config)]) == 2
    assert "--yes" in capsys.readouterr().err
    assert files(config.parent / "index") == before


@pytest.mark.parametrize(("answer", "gone"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_the_command_goes_by_the_answer(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    gone: bool,
) -> None:
    import io

    class Typed(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Typed(answer))
    assert run(["drop", "wines", "-c", str(config)]) == (0 if gone else 1)
    assert "wines.g1.lance" in capsys.readouterr().out
    assert (config.parent / "index" / "wines.json").exists() != gone


def test_a_dry_run_shows_what_would_go_as_json_too(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(config.parent / "index")
    assert run(["drop", "wines", "-c", str(config), "--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["index"], shown["dry_run"]) == ("wines", True)
    assert any(name.endswith("wines.g1.lance") for name in shown["removed"])
    assert files(config.parent / "index") == before
    assert run(["drop", "wines", "-c", str(config), "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == shown["removed"]
    assert run(["drop", "wines", "-c", str(config)]) == 0
    assert "nothing to drop" in capsys.readouterr().out


def test_a_sync_whose_index_is_dropped_fails_and_builds_nothing() -> None:
    parts = sample_parts()
    parts.table.upsert({rid("a"): values("one")})
    sync(parts)
    parts.table.upsert({rid("b"): values("two")})
    store = parts.store
    assert isinstance(store, MemoryStore)
    store.fail_before_commit = lambda: (store.drop(), None)[1]
    with pytest.raises(IndexDropped, match="was dropped while it was synced"):
        sync(parts)
    assert parts.store.open() is None


def test_a_failed_sync_of_a_dropped_index_leaves_no_history(config: Path) -> None:
    with lakewake.open(config) as lake:
        index = lake["wines"]
        index.drop()

        def fail() -> None:
            raise dropped("wines")

        with pytest.raises(IndexDropped):
            index._recorder.run(fail)  # type: ignore[arg-type]
    assert not (config.parent / "index" / "wines.history").exists()
