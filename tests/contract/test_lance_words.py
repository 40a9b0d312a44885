"""The word files of a Lance index: they save time and never change an answer."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import pytest

from lakewake.model.query import Words
from lakewake.store.lance import upkeep as lance_upkeep
from lakewake.store.lance import words as lance_words
from lakewake.store.lance.reader import LanceReader
from lakewake.store.lance.store import LanceStore
from lakewake.testing.answers import built_of
from lakewake.testing.samples import (
    ASKED,
    batch,
    chunk,
    contents,
    frontier,
    keys,
    recipe,
    some_rows,
)

ROWS = 20


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_words, "SLICE", 8)


def opened(folder: Path) -> LanceStore:
    """The store, as another process opens it."""
    return LanceStore(str(folder), "wines", words_min_chunks=1)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "wines.g1.lance" / "_words").glob("*"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An index with words in several files and some deleted chunks."""
    store, dice = opened(tmp_path), random.Random(0)
    store.create(recipe(), batch(*some_rows(dice, ROWS).values()), frontier(1), after=0)
    assert store.maintain()["texts_indexed"] > ROWS
    gone = tuple(sorted(contents(store.open()))[::3])
    store.commit(batch(deletes=gone), frontier(1), frontier(2))
    assert len(files(tmp_path)) > 2
    return tmp_path


def assert_right(store: LanceStore) -> None:
    index = store.open()
    assert index is not None
    ASKED.assert_alike(index, built_of(index, contents(index).values()))


def test_words_counted_in_files_are_not_counted_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    texts = lance_words._texts
    monkeypatch.setattr(lance_words, "_texts", lambda d, f: read.append(f) or texts(d, f))
    store = opened(folder)
    assert_right(store)
    # Only the texts of the last commit's fragment, which has no file, and only once.
    assert [f.fragment_id for f in read] == [1]
    assert_right(store)
    assert len(read) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.unlink(),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"something else"),
        lambda file: file.write_bytes(file.read_bytes()[:-9]),
        lambda file: file.write_bytes(file.read_bytes().replace(b"plum", b"fall")),
        lambda file: (file.unlink(), file.mkdir()),
    ],
    ids=["gone", "empty", "foreign", "short", "forged", "a folder"],
)
def test_words_are_counted_from_the_texts_if_their_files_are_damaged(
    folder: Path, damage: Callable[[Path], object]
) -> None:
    for file in files(folder):
        damage(file)
    assert_right(opened(folder))


def test_chunks_brought_back_by_a_restore_are_found(folder: Path) -> None:
    location = str(folder / "wines.g1.lance")
    store = opened(folder)
    before = contents(store.open())
    lance.dataset(location).optimize.compact_files()
    for file in files(folder):
        file.unlink()
    opened(folder).maintain()
    assert_right(store)
    lance.dataset(location, version=1).restore()
    assert len(contents(store.open())) > len(before)
    assert_right(store)
    assert_right(opened(folder))


def test_word_files_of_removed_fragments_are_removed(folder: Path) -> None:
    before = set(files(folder))
    lance.dataset(str(folder / "wines.g1.lance")).optimize.compact_files()
    assert opened(folder).maintain()["texts_indexed"]
    assert files(folder)
    assert not before & set(files(folder))


def test_dropping_old_versions_keeps_the_word_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lance_upkeep, "KEEP_FOR", timedelta(microseconds=1))
    monkeypatch.setattr(lance_upkeep, "KEEP_VERSIONS", 1)
    monkeypatch.setattr(lance_upkeep, "MAX_OLD_VERSIONS", 1)
    before = files(folder)
    assert opened(folder).maintain()["versions_removed"]
    assert files(folder) == before


def test_a_reader_of_an_older_version_answers_without_its_word_files(folder: Path) -> None:
    location = str(folder / "wines.g1.lance")
    old = LanceReader(lance.dataset(location), 1, "wines")
    expected = built_of(old, contents(old).values())
    lance.dataset(location).optimize.compact_files()
    opened(folder).maintain()
    ASKED.assert_alike(old, expected)


def test_a_reader_can_be_pickled_after_a_search(folder: Path) -> None:
    index = opened(folder).open()
    assert index is not None
    found = index.keyword(Words("red", 3))
    sent = pickle.dumps(index)
    assert b"smoke_taint" not in sent
    assert pickle.loads(sent).keyword(Words("red", 3)).equals(found)


def test_an_index_of_an_earlier_version_answers_correctly_and_loses_lances_own_index(
    tmp_path: Path,
) -> None:
    """Those versions searched Lance's index, which counts the words of deleted chunks."""
    store = opened(tmp_path)
    rows = [chunk(str(n), f"red {n}") for n in range(9)]
    store.create(recipe(), batch(*rows), frontier(1), after=0)
    location = str(tmp_path / "wines.g1.lance")
    lance.dataset(location).create_scalar_index("_text", "INVERTED", stem=False)
    store.commit(batch(deletes=(rows[0]["_id"],)), frontier(1), frontier(2))
    assert_right(store)
    assert not files(tmp_path)
    assert opened(tmp_path).maintain() == {"texts_indexed": 8}
    assert lance.dataset(location).describe_indices() == []
    assert_right(store)
    assert keys(store.open().keyword(Words("5", 3))) == ["5"]
