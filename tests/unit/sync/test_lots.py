"""An embedder that asks for many texts gets those of several batches of rows at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lakewake.embed.cache import SqliteVectorCache
from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import TextRefused
from lakewake.source.memory import BATCH_ROWS
from lakewake.sync import sync
from support.oracle import built_from_nothing, indexed
from support.sampling import HASHING, SampleParts, rid, sample_parts, values

ROWS = 3 * BATCH_ROWS


class Large(HashingEmbedder):
    """Asks for more texts than a batch of rows has, and refuses some."""

    lot = 2_500

    def __init__(self, bad: str = "nothing") -> None:
        super().__init__(HASHING)
        self.bad = bad
        self.calls: list[int] = []

    def embed(self, texts):
        self.calls.append(len(texts))
        vectors = super().embed(texts)
        reasons = {n: "bad" for n, text in enumerate(texts) if self.bad in text}
        if reasons:
            raise TextRefused("some are bad", reasons, vectors)
        return vectors


def parts_with(embedder: Large) -> SampleParts:
    cache = SqliteVectorCache(None, embedder.identity)
    return replace(sample_parts(vector_cache=cache), embedder=embedder)


def calls_of(parts: SampleParts) -> list[int]:
    """How many texts each call of the embedder got."""
    assert isinstance(parts.embedder, Large)
    return parts.embedder.calls


def test_texts_of_several_batches_of_rows_are_embedded_together():
    parts = parts_with(Large())
    parts.table.upsert({rid(f"k{n}"): values(f"text {n}") for n in range(ROWS)})
    report = sync(parts)
    assert report.embedded == ROWS
    assert sorted(calls_of(parts)) == [500, 2_500]
    assert indexed(parts) == built_from_nothing(parts)


def test_a_text_in_several_batches_is_embedded_once_and_reused_for_the_other_rows():
    parts = parts_with(Large())
    parts.table.upsert({rid(f"k{n}"): values(f"text {n % 7}") for n in range(ROWS)})
    report = sync(parts)
    assert calls_of(parts) == [7]
    assert (report.embedded, report.reused) == (7, ROWS - 7)
    assert indexed(parts) == built_from_nothing(parts)


def test_only_the_rows_of_a_refused_text_are_quarantined():
    parts = parts_with(Large(bad="text 17."))
    parts.table.upsert({rid(f"k{n}"): values(f"text {n}.") for n in range(ROWS)})
    report = sync(parts)
    assert report.quarantined == 1
    assert len(indexed(parts)) == ROWS - 1


def test_tokens_that_a_service_counted_are_reported():
    class Counted(Large):
        tokens = 100

        def embed(self, texts):
            self.tokens += 7 * len(texts)
            return super().embed(texts)

    parts = parts_with(Counted())
    parts.table.upsert({rid(f"k{n}"): values(f"text {n}") for n in range(5)})
    report = sync(parts)
    assert (report.tokens, report.as_dict()["tokens"]) == (35, 35)
    assert "tokens" not in sync(parts).as_dict()


def test_half_a_lot_is_embedded_too():
    parts = parts_with(Large())
    parts.table.upsert({rid("k"): values("text")})
    assert sync(parts).embedded == 1
    assert np.array_equal(calls_of(parts), [1])
