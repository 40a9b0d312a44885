"""Canaries: questions with known answers that are asked after each sync."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click import unstyle

from lakewake.api import Index
from lakewake.cli.history import sync_lines
from lakewake.cli.status import show_status
from lakewake.errors import EmbedError
from lakewake.model.canaries import Canaries, CanarySettings
from lakewake.model.history import SyncRecord
from support.following import follow, table_of
from support.sampling import rid, values


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """An index of two rows, whose canaries look for one word of each."""
    made = follow(f"lance://{tmp_path}/index")
    file = tmp_path / "canaries.jsonl"
    file.write_text(
        '{"query": "smoky", "relevant": ["a"]}\n{"query": "citrus", "relevant": ["b"]}\n'
    )
    made.settings = replace(made.settings, canaries=CanarySettings(str(file), "keyword"))
    table_of(made).upsert({rid("a"): values("smoky leather"), rid("b"): values("citrus honey")})
    return made


def test_canaries_are_answered_after_a_sync_and_a_drop_is_shown_until_it_is_over(
    index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    first = index.sync().canaries
    assert first is not None
    assert (first.questions, first.main, first.before, first.dropped) == (2, 1.0, None, False)
    # The row still exists, and does not answer its question any more.
    table_of(index).upsert({rid("a"): values("plum")})
    dropped = index.sync().canaries
    assert dropped is not None
    assert (dropped.main, dropped.before, dropped.dropped) == (0.5, 1.0, True)
    # A sync with nothing to do asks nothing; one with something else to do still shows the drop.
    assert index.sync().canaries is None
    table_of(index).upsert({rid("c"): values("fig")})
    assert (index.sync().canaries or first).before == 1.0
    assert [r.canaries.dropped for r in index.history() if r.canaries] == [True, True, False]
    status = index.status()
    assert status.as_dict()["canaries"]["dropped"] is True
    show_status(status)
    assert "DROPPED: ndcg@10 0.500 by 2 questions" in unstyle(capsys.readouterr().out)
    assert "DROPPED" in sync_lines(index.history(1)[0])[1]
    table_of(index).upsert({rid("a"): values("smoky again")})
    assert not (index.sync().canaries or dropped).dropped
    assert index.status().as_dict()["canaries"]["dropped"] is False


def test_other_questions_are_not_compared_with_the_former_ones(
    index: Index, tmp_path: Path
) -> None:
    index.sync()
    (tmp_path / "canaries.jsonl").write_text('{"query": "zeppelin", "relevant": ["a"]}\n')
    table_of(index).upsert({rid("c"): values("fig")})
    found = index.sync().canaries
    assert found is not None
    assert (found.main, found.before, found.dropped) == (0.0, None, False)


def test_a_sync_lands_although_its_canaries_cannot_be_asked(index: Index, tmp_path: Path) -> None:
    (tmp_path / "canaries.jsonl").unlink()
    report = index.sync()
    assert report.embedded == 2
    assert "cannot be read" in (report.canaries or Canaries()).error
    assert index.status().in_step
    assert "not answered" in (index.status().canaries or Canaries()).in_words


def test_a_failing_model_shows_in_the_canaries_and_not_in_the_sync(index: Index) -> None:
    assert index.settings.canaries is not None
    index.settings = replace(
        index.settings, canaries=replace(index.settings.canaries, mode="hybrid")
    )
    embed = index.parts.embedder.embed

    def only_texts_of_rows(texts: list[str]) -> object:
        if texts == ["smoky"]:
            raise EmbedError("the model is down")
        return embed(texts)

    index.parts.embedder.embed = only_texts_of_rows  # type: ignore[method-assign, assignment]
    assert (index.sync().canaries or Canaries()).error == "the model is down"
    assert index.history(1)[0].error is None


def test_an_index_without_canaries_records_none(index: Index) -> None:
    index.settings = replace(index.settings, canaries=None)
    assert index.sync().canaries is None
    stored = index.history(1)[0].to_stored()
    assert "canaries" not in stored
    assert "canaries" not in index.status().as_dict()


def test_a_record_with_canaries_survives_storage(index: Index) -> None:
    index.sync()
    record = index.history(1)[0]
    again = SyncRecord.from_stored(json.loads(json.dumps(record.to_stored())))
    assert again.canaries == record.canaries


def test_a_slow_decline_is_a_drop_once_it_is_large_enough() -> None:
    known: list[Canaries] = []
    for value in (0.9, 0.88, 0.87, 0.86):
        one = Canaries("hybrid", 9, {"ndcg@10": value}, "same")
        known.insert(0, one.judged(known, 0.05))
    assert [one.dropped for one in known] == [False] * 4
    last = Canaries("hybrid", 9, {"ndcg@10": 0.84}, "same").judged(known, 0.05)
    assert (last.before, last.dropped) == (0.9, True)
