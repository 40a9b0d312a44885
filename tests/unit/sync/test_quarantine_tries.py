"""How often a refused text is tried: once per sync."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import TextRefused
from lakewake.model.plan import Action
from lakewake.source import memory
from lakewake.sync import IndexParts, SyncOptions, sync
from support.sampling import HASHING, rid, sample_parts, values


class Choosy(HashingEmbedder):
    """Refuses one text."""

    def embed(self, texts):
        vectors = super().embed(texts)
        reasons = {n: "too odd" for n, text in enumerate(texts) if text == "refused"}
        if reasons:
            raise TextRefused("some are refused", reasons, vectors)
        return vectors


@pytest.fixture
def choosy() -> IndexParts:
    """An index of one good and one refused row, the embedder's count at zero."""
    made = replace(sample_parts(), embedder=Choosy(HASHING))
    made.table.upsert({rid("good"): values("fine"), rid("bad"): values("refused")})
    sync(made)
    made.embedder.received.clear()
    return made


def attempts(parts: IndexParts) -> dict[str, int]:
    quarantine = parts.store.open().frontier().quarantine
    return {row.key: refusal.attempts for row, refusal in quarantine.items()}


def test_a_text_refused_in_one_batch_of_rows_is_not_tried_again_in_the_next(choosy, monkeypatch):
    monkeypatch.setattr(memory, "BATCH_ROWS", 1)
    choosy.table.upsert({rid(key): values("refused") for key in ("x", "y", "z")})
    report = sync(choosy)
    assert choosy.embedder.received == ["refused"]
    assert (report.embedded, report.quarantined, report.reused) == (1, 3, 0)
    assert attempts(choosy) == {"bad": 1, "x": 1, "y": 1, "z": 1}


def test_a_retry_leaves_out_rows_that_the_same_sync_has_just_tried(choosy):
    choosy.table.upsert({rid("new"): values("refused"), rid("good"): values("better")})
    report = sync(choosy, SyncOptions(retry_quarantined=True))
    assert sorted(choosy.embedder.received) == ["better", "refused", "refused"]
    assert attempts(choosy) == {"bad": 2, "new": 1}
    assert report.quarantined == 2


@pytest.mark.parametrize(
    ("options", "action"),
    [(SyncOptions(reconcile=True), Action.RECONCILE), (SyncOptions(rebuild=True), Action.BUILD)],
)
def test_a_retry_beside_a_sync_of_all_rows_tries_each_once(choosy, options, action):
    report = sync(choosy, replace(options, retry_quarantined=True))
    assert report.action is action
    assert choosy.embedder.received == ["refused"]
    assert report.embedded == 1
