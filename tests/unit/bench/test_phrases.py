"""The texts of the large benchmark, whose vectors are made once."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import phrases
from bench.ground import Ground
from bench.sizes import SMOKE
from lakewake.config.settings import ModelSettings
from lakewake.embed.hashing import HashingEmbedder


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(SMOKE, tmp_path, None)


@pytest.fixture
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were embedded, by a model that takes no time."""
    model = ModelSettings(provider="hashing", name="hashing", dimension=phrases.DIMENSION)
    embedder, texts = HashingEmbedder(model), list[str]()

    class Counting:
        identity = embedder.identity

        def embed(self, some: list[str]) -> Any:
            texts.extend(some)
            return embedder.embed(some)

    monkeypatch.setattr(phrases, "load_embedder", lambda _: Counting())
    monkeypatch.setattr(phrases, "BLOCK", 8)
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path / "home"))
    return texts


def test_texts_are_distinct_and_the_same_every_time() -> None:
    some = list(islice(phrases.phrases(), 3_000))
    assert len(set(some)) == 3_000
    assert some == list(islice(phrases.phrases(), 3_000))


def test_a_run_that_was_stopped_goes_on_where_it_ended(ground: Ground, received: list[str]) -> None:
    phrases.vectors(ground, 20)
    (file,) = (Path(f) for f in phrases._file().parent.iterdir())
    with open(file, "ab") as out:
        out.write(b"part of a row")
    found = phrases.vectors(ground, 50)
    assert received == list(islice(phrases.phrases(), 50))
    file.unlink()
    np.testing.assert_array_equal(found, phrases.vectors(ground, 50))


def test_vectors_that_are_there_are_not_made_again(ground: Ground, received: list[str]) -> None:
    phrases.vectors(ground, 20)
    received.clear()
    assert phrases.vectors(ground, 10).shape == (10, phrases.DIMENSION)
    assert received == []


def test_questions_are_not_among_the_indexed_texts(received: list[str]) -> None:
    phrases.questions(100, 5)
    assert received == list(islice(phrases.phrases(), 100, 105))
