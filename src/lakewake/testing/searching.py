"""What every store promises to searches: exact answers, by vector and by words."""

from __future__ import annotations

import datetime
import math
import random
from typing import Any

import numpy as np
import pytest

from lakewake.errors import (
    ConfigError,
    FilterError,
)
from lakewake.model.query import Query, Words
from lakewake.model.rows import RowId
from lakewake.model.where import And, Compare, Contains, In, IsNull, Not
from lakewake.search.where import parse_where
from lakewake.store import Store
from lakewake.store.limited import Limit, LimitedReader
from lakewake.testing.answers import built_of
from lakewake.testing.samples import (
    ASKED,
    DIMENSION,
    FILTERED,
    FULL,
    SCHEMA,
    batch,
    chunk,
    contents,
    frontier,
    keys,
    opened,
    query,
    recipe,
    some_rows,
    vector_of,
)


class SearchingContract:
    """Tests of `StoreContract`, which has their fixtures."""

    def test_search_puts_the_same_text_first_with_cosine_one(self, built: Store) -> None:
        reader = built.open()
        assert reader is not None
        found = reader.search(query("white"))
        assert keys(found)[0] == "b"
        assert found["_similarity"][0].as_py() == pytest.approx(1.0)
        hidden = ("_vector", "_checkpoint", "_source_hash", "_payload_hash", "_instant")
        shown = [n for n in SCHEMA.names if n not in hidden]
        assert found.column_names == [*shown, "_similarity"]

    @pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
    def test_search_ranks_by_the_metric_and_reports_the_cosine(
        self, store: Store, metric: str
    ) -> None:
        rows = [chunk(str(n), str(n)) for n in range(20)]
        store.create(recipe(metric), batch(*rows), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        found = reader.search(query("anything", 20))
        q, all_of = np.array(vector_of("anything")), np.array([r["_vector"] for r in rows])
        cos = all_of @ q / np.linalg.norm(all_of, axis=1) / np.linalg.norm(q)
        near = {"cosine": cos, "dot": all_of @ q, "l2": -np.linalg.norm(all_of - q, axis=1)}[metric]
        assert keys(found) == [str(n) for n in np.argsort(-near)]
        if metric != "cosine":
            np.testing.assert_allclose(found["_score"], np.sort(near)[::-1], rtol=1e-5)
        np.testing.assert_allclose(
            found["_similarity"],
            np.sort(cos)[::-1] if metric == "cosine" else cos[np.argsort(-near)],
            atol=1e-6,
        )

    def test_search_finds_enough_rows_when_rows_have_many_chunks(self, store: Store) -> None:
        near = np.array(vector_of("red"))
        crowd = [chunk("crowd", f"c{n}", n, _vector=(near + n * 1e-4).tolist()) for n in range(200)]
        others = [chunk(str(n), str(n)) for n in range(5)]
        store.create(recipe(), batch(*crowd, *others), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        found = reader.search(query("red", 4))
        assert keys(found)[0] == "crowd"
        assert len(set(keys(found))) == 4
        assert len(set(keys(reader.search(query("red", 100))))) == 6

    def test_search_filters_before_it_ranks(self, store: Store) -> None:
        rows = [
            chunk(str(n), str(n), country="Italy" if n % 10 == 0 else "France", points=n)
            for n in range(50)
        ]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        italian = Compare("country", "=", "Italy")
        assert set(keys(reader.search(query("7", 5, where=italian)))) == {*"0"} | {
            "10",
            "20",
            "30",
            "40",
        }
        both = And((italian, Compare("points", ">", 25)))
        assert set(keys(reader.search(query("7", 5, where=both)))) == {"30", "40"}
        listed = In("points", (1, 2))
        assert set(keys(reader.search(query("7", 5, where=listed)))) == {"1", "2"}

    def test_lists_are_filtered_by_their_elements(self, store: Store) -> None:
        tags = {"a": ["red", "dry"], "b": ["o'ak", None], "c": [], "d": None, "e": ["redder"]}
        rows = [chunk(key, "plum", tags=value) for key, value in tags.items()]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = opened(store)
        red, two = Contains("tags", ("red",)), Contains("tags", ("o'ak", "dry", "none"))
        found = {"a": red, "ab": two, "bce": Not(red), "ce": Not(two), "b": And((two, Not(red)))}
        for wanted, where in found.items():
            assert sorted(keys(reader.search(query("plum", 9, where=where)))) == [*wanted]
            assert sorted(keys(reader.keyword(Words("plum", 9, where)))) == [*wanted]
        for wrong in (Compare("tags", "=", "red"), Contains("country", ("red",))):
            with pytest.raises(FilterError, match="list"):
                reader.search(query("plum", where=wrong))

    def test_structs_nulls_cases_and_spelled_dates_are_filtered(self, store: Store) -> None:
        full = {name: FULL[name] for name in ("tags", "customer", "bottled", "seen")}
        other = {"country": "FR", "since": datetime.date(2024, 1, 1), "rating": -1.0, "orders": 1}
        rows = [
            chunk("a", "plum", country="Italy", **full),
            chunk("b", "plum", customer=other, bottled=datetime.date(2021, 1, 1)),
            chunk("c", "plum", country="fra", tags=[], customer={"rating": math.nan, "groups": []}),
            chunk("d", "plum", customer={}),
            chunk("e", "plum"),
        ]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = opened(store)
        for text, wanted in FILTERED.items():
            where = parse_where(text)
            found = reader.search(query("plum", 9, where=where))
            assert sorted(keys(found)) == [*wanted], text
            assert sorted(keys(reader.keyword(Words("plum", 9, where)))) == [*wanted], text
            limited = LimitedReader(reader, Limit("wines", where))
            assert sorted(keys(limited.search(query("plum", 9)))) == [*wanted], text
            assert limited.counts() == (len(wanted), len(wanted)), text

    def test_a_right_on_a_field_that_is_not_there_shows_nothing(self, store: Store) -> None:
        store.create(recipe(), batch(chunk("a", "plum", **FULL)), frontier(1), after=0)
        for text in ("customer.gone = 'DE'", "NOT customer.home.gone IS NULL"):
            limited = LimitedReader(opened(store), Limit("wines", parse_where(text)))
            assert keys(limited.search(query("plum", 9))) == []
            assert keys(limited.keyword(Words("plum", 9))) == []
            assert limited.counts() == (0, 0)

    def test_a_limited_reader_shows_only_the_rows_of_its_limit(self, store: Store) -> None:
        tags = {"a": ["red"], "b": ["red", "dry"], "c": ["dry"], "d": None, "e": []}
        rows = [chunk(key, f"plum {key}", n, tags=t) for key, t in tags.items() for n in (0, 1)]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        every, columns = [RowId("p", key) for key in tags], ["_key", "_text"]
        for where, seen in ((Contains("tags", ("red",)), "ab"), (Compare("gone", "=", 1), "")):
            reader = LimitedReader(opened(store), Limit("wines", where))
            for asked in (None, Not(where) if seen else None, Contains("tags", ("dry",))):
                wanted = {*seen} if asked is None else {*seen} & {*("b" if "b" in seen else "")}
                wanted = set() if isinstance(asked, Not) else wanted
                assert {*keys(reader.search(query("plum c", 9, where=asked)))} == wanted
                assert {*keys(reader.keyword(Words("plum", 9, asked)))} == wanted
            assert {row.key for row in reader.existing(every)} == {*seen}
            shown = (
                reader.scan(columns),
                reader.sample(99, columns),
                reader.chunks(every, columns),
            )
            for batches in shown:
                found = [one for some in batches for one in some.to_pylist()]
                assert {one["_key"] for one in found} == {*seen}
                assert all({*one} == {*columns} for one in found)
            assert reader.counts() == (len(seen), 2 * len(seen))

    def test_a_filter_that_matches_nulls_never_returns_the_checkpoint(self, built: Store) -> None:
        reader = built.open()
        assert reader is not None
        found = reader.search(query("red", 10, where=IsNull("country")))
        assert sorted(keys(found)) == [*"abc"]

    def test_a_filter_on_a_column_that_is_not_there_is_refused(self, built: Store) -> None:
        reader = built.open()
        assert reader is not None
        with pytest.raises(FilterError):
            reader.search(query("red", where=Compare("colour", "=", "red")))

    def test_a_query_of_another_dimension_is_refused(self, built: Store) -> None:
        reader = built.open()
        assert reader is not None
        with pytest.raises(ConfigError, match="3 dimensions, the index has 8"):
            reader.search(Query(np.ones(3, np.float32), 1))

    def test_a_zero_vector_has_no_cosine_and_is_not_found(self, store: Store) -> None:
        rows = (chunk("a"), chunk("zero", _vector=[0.0] * DIMENSION))
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        assert keys(reader.search(query("red", 10))) == ["a"]

    @pytest.mark.parametrize("metric", ["dot", "l2"])
    def test_a_zero_vector_has_a_dot_product_and_a_distance(
        self, store: Store, metric: str
    ) -> None:
        rows = (chunk("a"), chunk("zero", _vector=[0.0] * DIMENSION))
        store.create(recipe(metric), batch(*rows), frontier(1), after=0)
        found = opened(store).search(query("red", 10))
        assert keys(found) == ["a", "zero"]
        length = float(np.linalg.norm(vector_of("red")))
        scores = {"dot": [length**2, 0.0], "l2": [0.0, -length]}[metric]
        np.testing.assert_allclose(found["_score"], scores, rtol=1e-5, atol=1e-5)
        assert found["_similarity"].to_pylist() == [pytest.approx(1.0), 0.0]

    def test_words_find_the_chunks_that_have_any_of_them_best_first(self, store: Store) -> None:
        texts = {
            "both": "smoky leather",
            "one": "Smoky citrus honey plum cherry",
            "other": "LEATHER",
            "none": "fresh lime",
        }
        store.create(
            recipe(), batch(*(chunk(k, t) for k, t in texts.items())), frontier(1), after=0
        )
        reader = store.open()
        assert reader is not None
        found = reader.keyword(Words("leather, SMOKY!", 10))
        assert keys(found)[0] == "both"
        assert sorted(keys(found)) == ["both", "one", "other"]
        scores = found["_relevance"].to_pylist()
        assert scores == sorted(scores, reverse=True)
        assert min(scores) > 0
        shown = reader.search(query("red")).column_names
        assert found.column_names == [*shown[:-1], "_relevance"]

    def test_a_language_compares_stems_and_leaves_out_its_stop_words(self, store: Store) -> None:
        texts = {"one": "The warm jacket", "several": "Warmer jackets are hiking", "not": "the are"}
        rows = (chunk(key, text) for key, text in texts.items())
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        assert reader.languages() == {"text": "english"}
        assert keys(reader.keyword(Words("the jackets", 9))) == ["several", "not", "one"]
        stemmed = reader.keyword(Words("the jackets", 9, None, "english"))
        assert sorted(keys(stemmed)) == ["one", "several"]
        assert keys(reader.keyword(Words("hikes", 9, None, "english"))) == ["several"]
        assert keys(reader.keyword(Words("hikes", 9, None, "german"))) == []
        # A question of stop words only still finds them.
        assert "not" in keys(reader.keyword(Words("are the", 9, None, "english")))

    @pytest.mark.parametrize(
        ("text", "language", "found"),
        [
            ('"warm jacket"', "none", ["exact"]),
            ('"warm jacket"', "english", ["exact", "stems"]),
            ('"jacket warm" leather', "english", ["turned"]),
            ('"warm" leather', "none", ["exact", "stems", "turned"]),
            ('"the jacket is"', "english", ["stems"]),
            ('"unbalanced jacket', "none", ["exact", "stems", "turned"]),
            ("jack*", "english", ["exact", "jackdaw", "stems", "turned"]),
            ("jakcet~", "none", ["exact", "stems", "turned"]),
            ("jakets~ w* nothing", "none", ["stems"]),
            ("wa* zz*", "none", ["exact", "stems", "turned"]),
            ("le~", "none", []),
        ],
    )
    def test_phrases_beginnings_and_similar_words_are_found(
        self, store: Store, text: str, language: str, found: list[str]
    ) -> None:
        texts = {
            "exact": "A warm jacket.",
            "stems": "Warm jackets: the jacket is it.",
            "turned": "jacket, warm as leather",
            "jackdaw": "a jackdaw",
        }
        rows = (chunk(key, text) for key, text in texts.items())
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        assert sorted(keys(reader.keyword(Words(text, 9, None, language)))) == found

    @pytest.mark.parametrize("text", ["", "!?", "zeppelin", "'; --", 'a" OR "b', "x" * 5000])
    def test_words_that_no_chunk_has_find_nothing(self, built: Store, text: str) -> None:
        reader = built.open()
        assert reader is not None
        assert reader.keyword(Words(text, 3)).num_rows == 0

    def test_words_are_filtered_before_they_are_ranked(self, store: Store) -> None:
        rows = [chunk(str(n), f"smoky {n}", points=n) for n in range(40)]
        store.create(recipe(), batch(*rows), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        wanted = Compare("points", ">=", 37)
        assert sorted(keys(reader.keyword(Words("smoky", 2, wanted)))) <= ["37", "38", "39"]
        assert len(keys(reader.keyword(Words("smoky", 9, wanted)))) == 3
        with pytest.raises(FilterError):
            reader.keyword(Words("smoky", 2, Compare("colour", "=", "red")))

    def test_words_find_enough_rows_when_rows_have_many_chunks(self, store: Store) -> None:
        crowd = [chunk("crowd", "smoky", n) for n in range(50)]
        others = [chunk(str(n), f"smoky and many other words {n}") for n in range(5)]
        store.create(recipe(), batch(*crowd, *others), frontier(1), after=0)
        reader = store.open()
        assert reader is not None
        found = keys(reader.keyword(Words("smoky", 4)))
        assert found[0] == "crowd"
        assert len(set(found)) == 4

    def test_words_of_replaced_or_deleted_chunks_are_not_found(self, built: Store) -> None:
        built.maintain()
        rows = (chunk("a", "PLUM"), chunk("n", "fig"))
        built.commit(batch(*rows), frontier(1), frontier(2))
        gone = chunk("n")["_id"]
        built.commit(batch(chunk("b", "cherry"), deletes=(gone,)), frontier(2), frontier(3))
        reader = built.open()
        assert reader is not None
        assert keys(reader.keyword(Words("plum", 3))) == ["a"]
        assert keys(reader.keyword(Words("cherry", 3))) == ["b"]
        for former in ("fig", "white"):
            assert keys(reader.keyword(Words(former, 3))) == []

    @pytest.fixture
    def small_parts(self) -> None:
        """Make the parts of an index so small that there are several."""

    @pytest.mark.usefixtures("small_parts")
    @pytest.mark.parametrize(("seed", "metric"), [(0, "cosine"), (1, "dot"), (2, "l2")])
    def test_all_answers_equal_those_of_a_fresh_build_after_any_history(
        self, store: Store, seed: int, metric: str
    ) -> None:
        dice, held = random.Random(seed), dict[str, dict[str, Any]]()
        held |= some_rows(dice, 12)
        store.create(recipe(metric), batch(*held.values()), frontier(0), after=0)
        for n in range(6):
            rows = some_rows(dice, dice.randrange(1, 4))
            again = {c["_key"] for c in (*rows.values(), *dice.sample(list(held.values()), 2))}
            gone = [i for i, c in held.items() if c["_key"] in again and i not in rows]
            store.commit(batch(*rows.values(), deletes=tuple(gone)), frontier(n), frontier(n + 1))
            held = {i: c for i, c in held.items() if i not in gone} | rows
            if dice.random() < 0.5:
                store.maintain()
            if n % 2:
                index = store.open()
                assert index is not None
                ASKED.assert_alike(index, built_of(index, held.values()))

    def test_chunks_with_equal_scores_are_ordered_by_id(self, store: Store) -> None:
        rows = [chunk(f"{n:02}", "red") for n in range(40)]
        store.create(recipe(), batch(*rows[20:]), frontier(1), after=0)
        store.commit(batch(*rows[:20]), frontier(1), frontier(2))
        index = store.open()
        assert index is not None
        first = [f"{n:02}" for n in range(5)]
        assert keys(index.search(query("red", 5, exact=True))) == first
        assert keys(index.keyword(Words("red", 5))) == first

    def test_a_filter_does_not_change_keyword_scores(self, built: Store) -> None:
        rows = [chunk("d", "red plum", points=1), chunk("e", "plum", points=2)]
        built.commit(batch(*rows), frontier(1), frontier(2))
        index = built.open()
        assert index is not None
        scores = [
            dict(zip(keys(found), found["_relevance"].to_pylist(), strict=True))
            for found in (
                index.keyword(Words("red plum", 9, where))
                for where in (None, Compare("points", "=", 1))
            )
        ]
        assert set(scores[0]) == {"a", "d", "e"}
        assert scores[1] == {"d": scores[0]["d"]}

    def test_upkeep_changes_no_answer_of_the_index(self, built: Store) -> None:
        for n in range(1, 4):
            built.commit(batch(chunk(f"k{n}")), frontier(n), frontier(n + 1))
        before = contents(built.open())
        built.maintain()
        reader = built.open()
        assert reader is not None
        assert contents(reader) == before
        assert reader.frontier() == frontier(4)
