"""What every store promises to searches from Spark, as tests of `StoreContract`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lakewake.model.query import Mode, Query, Question
from lakewake.model.rows import RowId
from lakewake.model.where import Compare, Where
from lakewake.search.run import search
from lakewake.testing.answers import ByText
from lakewake.testing.joining import asked, joined, within
from lakewake.testing.samples import batch, chunk, frontier, opened, recipe, vector_of

if TYPE_CHECKING:
    from lakewake.store import Store, StoreReader

CLOSE = 1e-5


class BatchContract:
    """Searches of many questions, and ranges. `made` fills the store with chunks."""

    def made(self, store: Store) -> StoreReader:
        """Rows with several chunks, equal vectors, changes and deletes, in two commits."""
        rows = [
            chunk(f"k{n}", f"text {n % 17}", n=part, _partition="pq"[n % 2], points=n)
            for n in range(40)
            for part in range(1 + n % 3)
        ]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        moved = [chunk(f"k{n}", f"moved {n}", _partition="pq"[n % 2], points=n) for n in (3, 8)]
        gone = tuple(chunk(f"k{n}", _partition="pq"[n % 2])["_id"] for n in (6, 9))
        store.commit(batch(*moved, deletes=gone), frontier(1), frontier(2))
        return opened(store)

    def test_a_join_finds_what_an_exact_search_of_each_question_finds(self, store: Store) -> None:
        reader = self.made(store)
        questions = vectors("text 3", "moved 8", "something else", "text 3")
        for k in (1, 3, 100):
            for where in (None, Compare("points", "<", 20)):
                found = joined(reader, questions, k, where)
                for n, question in enumerate(questions):
                    mine = [row for row in found if row["n"] == n]
                    same_hits(mine, expected(reader, question, k, where))

    def test_a_join_shows_the_version_that_was_opened(self, store: Store) -> None:
        reader = self.made(store)
        # Questions that are null, have no direction, or whose filter passes nothing have no rows.
        found = joined(reader, [None, [0.0] * 8, *vectors("moved 8")], 2)
        assert [(row["n"], row["_rank"]) for row in found] == [(2, 1), (2, 2)]
        assert joined(reader, vectors("text 1"), 2, Compare("points", ">", 1000)) == []
        hit = found[0]
        assert (hit["_key"], hit["_text"], hit["points"]) == ("k8", "moved 8", 8)
        assert hit["_instant"] == reader.frontier().newest
        store.commit(batch(chunk("new", "moved 8")), frontier(2), frontier(3))
        again = joined(reader, [None, [0.0] * 8, *vectors("moved 8")], 2)
        assert again == found

    def test_a_range_holds_all_chunks_that_are_near_enough(self, store: Store) -> None:
        reader = self.made(store)
        (question,) = vectors("text 3")
        for least in (-1.0, 0.0, 0.3, 0.9999, 1.5):
            for where in (None, Compare("points", "<", 20)):
                found = {r["_id"]: r["_score"] for r in within(reader, question, least, where)}
                every = reader.search(Query(np.array(question, np.float32), 1000, where, True))
                columns = (every[c].to_pylist() for c in ("_id", "_similarity"))
                near = {id: score for id, score in zip(*columns, strict=True) if score >= least}
                assert found == pytest.approx(near, abs=CLOSE)

    def test_questions_asked_on_their_own_get_the_answers_of_a_search(self, store: Store) -> None:
        reader, texts = self.made(store), ["text 3", "moved 8", " "]
        embedder = ByText(reader.recipe().model, vector_of)
        for mode in Mode:
            shared = Question("wines", k=4, mode=mode, exact=True, where="points < 30")
            found = asked(reader, texts, shared, partial(ByText, embedder.identity, vector_of))
            assert {row["n"] for row in found} == {0, 1}
            for n, text in enumerate(texts[:2]):
                hits = search(reader, embedder, replace(shared, text=text)).hits
                rows = [row for row in found if row["n"] == n]
                assert [(r["_key"], r["_score"], r["points"]) for r in rows] == [
                    (hit.key, pytest.approx(hit.score), hit.payload["points"]) for hit in hits
                ]

    def test_divided_parts_have_the_same_chunks_in_the_same_order_each_time(
        self, store: Store
    ) -> None:
        reader = self.made(store)
        whole = sorted(id for b in reader.scan(["_id"]) for id in b["_id"].to_pylist())
        read = [
            [[id for b in part for id in b["_id"].to_pylist()] for part in parts.parts]
            for parts in (reader.scan_parts(["_id"], 7), reader.scan_parts(["_id", "_text"], 7))
        ]
        assert read[0] == read[1]
        assert sorted(id for part in read[0] for id in part) == whole


def vectors(*texts: str) -> list[list[float]]:
    return [vector_of(text) for text in texts]


def expected(
    reader: StoreReader, question: Sequence[float], k: int, where: Where | None
) -> list[tuple[RowId, float]]:
    """The best rows of an exact search, with their scores."""
    found = reader.search(Query(np.array(question, np.float32), k, where, exact=True))
    best: dict[RowId, float] = {}
    columns = (found[c].to_pylist() for c in ("_partition", "_key", "_similarity"))
    for partition, key, score in zip(*columns, strict=True):
        best.setdefault(RowId(partition, key), score)
    return list(best.items())


def same_hits(found: list[dict[str, Any]], hits: list[tuple[RowId, float]]) -> None:
    """Check rows and scores; the order of equal scores is not checked."""
    assert [row["_rank"] for row in found] == list(range(1, len(found) + 1))
    assert [row["_score"] for row in found] == pytest.approx([s for _, s in hits], abs=CLOSE)
    assert {(row["_partition"], row["_key"]) for row in found} == {
        (r.partition, r.key) for r, _ in hits
    }
