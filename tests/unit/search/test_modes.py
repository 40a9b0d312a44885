"""Keyword and hybrid search, pages, weights, similar rows and reranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import ConfigError, EmbedError
from lakewake.model.chunks import Batch, chunk_id, index_schema, text_hash
from lakewake.model.frontier import Frontier
from lakewake.model.fusion import Fusion
from lakewake.model.query import Hit, Mode, Question
from lakewake.model.recipe import Recipe, TextField
from lakewake.model.rows import RowId
from lakewake.model.timeline import TableIdentity
from lakewake.model.words import words_of
from lakewake.search.fuse import RANKS, best_of_rows, fuse
from lakewake.search.highlight import LONGEST, highlight
from lakewake.search.run import Ranking, search
from lakewake.store import StoreReader
from lakewake.store.memory import MemoryStore
from lakewake.store.words import relevance

PAYLOAD = pa.schema({"stock": pa.int64()})
SHOP = {
    "jacket": ("Alpine jacket", "A warm waterproof jacket for winter hiking."),
    "boots": ("Trail boots", "Light boots. They go with any jacket on a long walk."),
    "tent": ("Dome tent", "A tent for two, waterproof and quick to build."),
    "stove": ("Gas stove", "Boils water in three minutes."),
}


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder(ModelSettings(provider="hashing", dimension=64))


def chunk(embedder: HashingEmbedder, key: str, field: str, text: str, stock: int) -> dict[str, Any]:
    return {
        "_id": chunk_id(RowId("p", key), field, 0),
        "_key": key,
        "_partition": "p",
        "_field": field,
        "_chunk": 0,
        "_hash": text_hash(text),
        "_instant": "20250101000000",
        "_text": text,
        "_vector": embedder.embed([text])[0].tolist(),
        "stock": stock,
    }


@pytest.fixture
def reader(embedder: HashingEmbedder) -> StoreReader:
    fields = (TextField("name", "{name}"), TextField("story", "{story}"))
    rows = [
        chunk(embedder, key, field, text, stock)
        for stock, (key, texts) in enumerate(SHOP.items())
        for field, text in zip(("name", "story"), texts, strict=True)
    ]
    return reader_of(rows, fields, embedder)


def reader_of(
    rows: list[dict[str, Any]], fields: tuple[TextField, ...], embedder: HashingEmbedder
) -> StoreReader:
    recipe = Recipe(embedder.identity, fields, payload=("stock",))
    schema = index_schema(recipe, PAYLOAD)
    table = pa.Table.from_pylist(rows, schema)
    frontier = Frontier(TableIdentity("shop", "id", "", "COPY_ON_WRITE"), {"2025010100": "2"})
    store = MemoryStore()
    store.create(recipe, Batch(schema, table.to_reader), frontier, after=0)
    embedder.received.clear()
    opened = store.open()
    assert opened is not None
    return opened


def ask(text: str | None = "waterproof jacket", **given: Any) -> Question:
    return Question("shop", text, **{"k": 4, **given})


def keys(hits: Sequence[Hit]) -> list[str]:
    return [hit.key for hit in hits]


def test_a_keyword_search_finds_rows_with_any_of_the_words_and_embeds_nothing(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    result = search(reader, embedder, ask("WATERPROOF Jacket", mode=Mode.KEYWORD))
    assert keys(result.hits)[0] == "jacket"
    assert set(keys(result.hits)) == {"jacket", "boots", "tent"}
    assert all(hit.similarity is None and hit.score > 0 for hit in result.hits)
    assert result.as_dict()["mode"] == "keyword"
    assert embedder.received == []


def test_a_keyword_search_for_words_that_no_row_has_finds_nothing(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    result = search(reader, embedder, ask("zeppelin", mode=Mode.KEYWORD))
    assert (result.hits, result.more) == ((), False)


def test_filters_apply_to_keyword_searches(reader: StoreReader, embedder: HashingEmbedder) -> None:
    asked = ask("waterproof", mode=Mode.KEYWORD, where="stock > 1")
    assert keys(search(reader, embedder, asked).hits) == ["tent"]


def test_pages_of_a_hybrid_search_have_each_row_once(embedder: HashingEmbedder) -> None:
    texts = [f"jacket {'winter ' * (n % 7)}{'rain ' * (n % 5)}number {n}" for n in range(150)]
    made = [chunk(embedder, f"k{n}", "name", text, n) for n, text in enumerate(texts)]
    reader = reader_of(made, (TextField("name", "{name}"),), embedder)
    pages = [
        search(reader, embedder, ask("winter rain jacket", mode=Mode.HYBRID, k=10, offset=offset))
        for offset in range(0, 150, 10)
    ]
    keys = [hit.key for page in pages for hit in page.hits]
    assert len(keys) == len(set(keys)) == 150


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", [".", ". ", '."', "\n", " ", "x.", "?x"])
def test_a_long_run_of_any_character_is_highlighted_quickly(unit: str) -> None:
    assert highlight(unit * 200_000 + "x", "nothing") is None


def test_a_hybrid_search_ranks_rows_first_that_both_searches_find(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    result = search(reader, embedder, ask("Alpine jacket", mode=Mode.HYBRID))
    assert set(keys(result.hits)) == set(SHOP)
    first = result.hits[0]
    assert first.key == "jacket"
    assert first.similarity == pytest.approx(1.0)
    assert first.score == pytest.approx(1.0)


def test_fusion_prefers_rows_in_both_rankings() -> None:
    def hit(key: str, similarity: float | None = None) -> Hit:
        return Hit(key, "", 1.0, similarity, "text", "text", 0)

    fused = fuse([hit("a", 0.9), hit("b", 0.8)], [hit("c"), hit("b")])
    assert keys(fused) == ["b", "a", "c"]
    assert fused[0].score == 1.0
    assert [h.similarity for h in fused] == [0.8, 0.9, None]
    by_ranks = fuse([hit("a", 0.9), hit("b", 0.8)], [hit("c"), hit("b")], Fusion("ranks"))
    assert keys(by_ranks) == ["b", "a", "c"]
    assert by_ranks[0].score == pytest.approx(1 / (RANKS + 2))


def test_fusion_weighs_the_rankings_and_scales_their_scores() -> None:
    def hits(**scores: float) -> list[Hit]:
        return [Hit(key, "", s, None, "text", "text", 0) for key, s in scores.items()]

    near, worded = hits(a=0.9, b=0.8, c=0.5), hits(c=12.0, d=2.0)
    shares = {share: fuse(near, worded, Fusion(share=share)) for share in (0.0, 0.4, 1.0)}
    scored = {s: {h.key: round(h.score, 3) for h in found} for s, found in shares.items()}
    assert scored[0.4] == {"c": 0.6, "a": 0.4, "b": 0.3, "d": 0.0}
    assert keys(shares[0.0])[0] == "c"
    assert keys(shares[1.0])[:2] == ["a", "b"]
    # One row is its own best and last; distances are negative.
    assert [h.score for h in fuse(hits(x=-3.0), [])] == [0.5]
    assert fuse([], []) == []


def test_diversity_puts_rows_that_repeat_better_ones_behind_others(
    embedder: HashingEmbedder,
) -> None:
    texts = ["red jacket rain"] * 3 + ["red jacket snow", "red boots"]
    made = [chunk(embedder, f"k{n}", "name", text, n) for n, text in enumerate(texts)]
    reader = reader_of(made, (TextField("name", "{name}"),), embedder)
    for mode in Mode:
        asked = ask("red jacket rain", mode=mode, k=5)
        usual = search(reader, embedder, asked)
        assert keys(usual.hits)[:3] == ["k0", "k1", "k2"]
        varied = search(reader, embedder, replace(asked, diversity=0.8))
        assert keys(varied.hits)[0] == "k0"
        assert set(keys(varied.hits)[1:3]) == {"k3", "k4"}
        scores = {h.key: h.score for h in usual.hits}
        assert {h.key: h.score for h in varied.hits} == scores
        pages = [
            search(reader, embedder, replace(asked, diversity=0.8, k=2, offset=n))
            for n in (0, 2, 4)
        ]
        assert [k for page in pages for k in keys(page.hits)] == keys(varied.hits)
        assert [page.more for page in pages] == [True, True, False]
        assert len(search(reader, embedder, replace(asked, diversity=1.0, k=1)).hits) == 1


@pytest.mark.parametrize("diversity", [-0.1, 1.5, float("nan")])
def test_a_diversity_outside_0_to_1_is_refused(
    reader: StoreReader, embedder: HashingEmbedder, diversity: float
) -> None:
    with pytest.raises(ConfigError, match="diversity is") as refused:
        search(reader, embedder, ask(diversity=diversity))
    assert "0 to 1" in refused.value.hint


def test_the_best_chunk_of_a_row_is_kept() -> None:
    hits = [Hit("a", "", s, s, f"text {s}", "text", n) for n, s in enumerate((0.1, 0.9, 0.5))]
    assert [h.text for h in best_of_rows(hits)] == ["text 0.9"]


def test_pages_have_no_gaps_and_no_overlaps(reader: StoreReader, embedder: HashingEmbedder) -> None:
    whole = keys(search(reader, embedder, ask()).hits)
    pages = [search(reader, embedder, ask(k=2, offset=n)) for n in (0, 2)]
    assert [key for page in pages for key in keys(page.hits)] == whole
    assert [page.more for page in pages] == [True, False]
    assert search(reader, embedder, ask(k=2, offset=4)).hits == ()


def test_rows_below_the_minimum_score_are_left_out(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    every = search(reader, embedder, ask()).hits
    limit = every[1].score
    result = search(reader, embedder, ask(k=1, min_score=limit))
    assert (keys(result.hits), result.more) == (keys(every[:1]), True)
    assert len(search(reader, embedder, ask(min_score=limit)).hits) == 2
    assert search(reader, embedder, ask(min_score=2.0)).hits == ()


def test_rows_like_another_leave_out_that_row_and_embed_nothing(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    result = search(reader, embedder, ask(None, like=RowId("p", "jacket"), k=3))
    assert set(keys(result.hits)) == set(SHOP) - {"jacket"}
    assert not result.more
    assert embedder.received == []


def test_rows_like_an_unknown_row_are_an_error(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    with pytest.raises(ConfigError, match="holds nothing of row 'canoe' in partition 'p'"):
        search(reader, embedder, ask(None, like=RowId("p", "canoe")))


def test_a_field_with_a_high_weight_ranks_its_rows_first(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    def first(weights: dict[str, float], mode: Mode) -> tuple[str, str]:
        hit = search(reader, embedder, ask("jacket", mode=mode), Ranking(weights)).hits[0]
        return hit.key, hit.field

    for mode in (Mode.VECTOR, Mode.KEYWORD):
        assert first({"name": 5.0}, mode) == ("jacket", "name")
        assert first({"story": 50.0}, mode)[1] == "story"


def test_a_weight_multiplies_the_score_and_leaves_the_similarity(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    hit = search(reader, embedder, ask("Gas stove", k=1), Ranking({"name": 2.0})).hits[0]
    assert (hit.key, hit.similarity, hit.score) == ("stove", pytest.approx(1), pytest.approx(2))


def test_weights_keep_the_filter(reader: StoreReader, embedder: HashingEmbedder) -> None:
    asked = ask(where="stock = 0 OR stock = 3")
    hits = search(reader, embedder, asked, Ranking({"name": 2.0})).hits
    assert set(keys(hits)) == {"jacket", "stove"}


def test_reranking_orders_the_best_rows_and_leaves_the_others_in_place(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    plain = search(reader, embedder, ask()).hits
    seen: list[tuple[str, list[str]]] = []

    def backwards(question: str, texts: Sequence[str]) -> list[float]:
        seen.append((question, list(texts)))
        return [float(n) for n in range(len(texts))]

    reranked = search(reader, embedder, ask(), Ranking({}, backwards, rerank_rows=3)).hits
    assert seen == [("waterproof jacket", [hit.text for hit in plain[:3]])]
    assert keys(reranked) == [*keys(plain[:3])[::-1], plain[3].key]
    assert [hit.score for hit in reranked] == sorted((hit.score for hit in reranked), reverse=True)
    assert [hit.similarity for hit in reranked[:3]] == [hit.similarity for hit in plain[:3]][::-1]


def test_reranking_brings_up_rows_from_behind_the_first_page(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    last = search(reader, embedder, ask()).hits[-1]

    def only_the_last(_question: str, texts: Sequence[str]) -> list[float]:
        return [float(text == last.text) for text in texts]

    hits = search(reader, embedder, ask(k=1), Ranking({}, only_the_last)).hits
    assert keys(hits) == [last.key]


def test_a_failed_reranking_is_an_error(reader: StoreReader, embedder: HashingEmbedder) -> None:
    def fails(_question: str, _texts: Sequence[str]) -> list[float]:
        raise EmbedError("the service is down")

    with pytest.raises(EmbedError):
        search(reader, embedder, ask(), Ranking({}, fails))


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        (ask(offset=-1), "k is 4 after -1"),
        (ask(k=9_999, offset=2), "k is 9999 after 2"),
        (ask(None, vector=[1.0] * 64, mode=Mode.HYBRID), "mode hybrid .* needs a text"),
        (ask(None, like=RowId("p", "tent"), mode=Mode.KEYWORD), "mode keyword .* needs a text"),
        (ask("tent", like=RowId("p", "tent")), "either a text, a vector"),
        (ask(min_score=float("nan")), "min_score cannot be"),
    ],
)
def test_an_invalid_query_is_refused(
    reader: StoreReader, embedder: HashingEmbedder, question: Question, fact: str
) -> None:
    with pytest.raises(ConfigError, match=fact):
        search(reader, embedder, question)


def test_a_keyword_search_of_an_index_without_text_is_refused(embedder: HashingEmbedder) -> None:
    recipe = Recipe(embedder.identity, (), vector="embedding")
    schema = index_schema(recipe, pa.schema([]))
    frontier = Frontier(TableIdentity("shop", "id", "", "COPY_ON_WRITE"), {"2025010100": "2"})
    store = MemoryStore()
    store.create(recipe, Batch(schema, schema.empty_table().to_reader), frontier, after=0)
    opened = store.open()
    assert opened is not None
    with pytest.raises(ConfigError, match="no text to search for words"):
        search(opened, embedder, ask(mode=Mode.HYBRID))


def test_the_sentence_with_most_of_the_words_is_highlighted() -> None:
    text = "Light boots. They go with any jacket on a long walk.\nMade in Italy"
    start, end = highlight(text, "a jacket for walking") or (0, 0)
    assert text[start:end] == "They go with any jacket on a long walk."
    start, end = highlight(text, "ITALY") or (0, 0)
    assert text[start:end] == "Made in Italy"


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("happiness", "They are happy."),
        ("hope", "We are hoping for rain."),
        ("die", "A dying star."),
        ("possible", "It is possibly late."),
        ("flies", "Look how it flew and will fly."),
        ("boxes", "One box."),
        ("relational", "They relate to it."),
    ],
)
def test_an_english_highlight_has_the_stems_of_the_question(question: str, said: str) -> None:
    # The quick way is only for ASCII; both find the sentence.
    for first in ("Nothing here.", "Nothing hére."):
        text = f"{first} {said} Nothing there."
        start, end = highlight(text, question, "english") or (0, 0)
        assert text[start:end] == said


@pytest.mark.parametrize("language", ["none", "english"])
@pytest.mark.parametrize("question", ["jack*", "jackest~", "JÄCK*", "rain jack* winters~"])
def test_beginnings_and_similar_words_are_highlighted_as_they_are_found(
    question: str, language: str
) -> None:
    text = "It rains. Warm jackets for winter. Bye."
    start, end = highlight(text, question, language) or (0, 0)
    assert text[start:end] == "Warm jackets for winter."
    assert highlight("Nothing here. Nothing there.", question, language) is None


@pytest.mark.parametrize("question", ["the of a", "zeppelin", "!?"])
def test_nothing_is_highlighted_if_the_text_has_none_of_the_words(question: str) -> None:
    assert highlight("The best of a lot.", question) is None


@pytest.mark.parametrize("gap", [" ", ""])
def test_only_a_part_of_a_very_long_text_is_highlighted(gap: str) -> None:
    text = f"word{gap}" * 50_000 + " a zeppelin over the lake " + f"more{gap}" * 50_000
    start, end = highlight(text, "zeppelin") or (0, 0)
    assert "zeppelin" in text[start:end]
    assert end - start <= LONGEST


def test_a_highlight_is_a_whole_sentence_of_hard_wrapped_text() -> None:
    text = (
        "The ship of Capt. J. R. Smith was found by divers in the cold water of the\n"
        "northern bay, with e.g. all of its cargo of wine. It is now shown in hall\n"
        "No. 5 of the museum."
    )
    start, end = highlight(text, "who found the wine of the ship") or (0, 0)
    assert text[start:end] == text[: text.index(" It is now")]
    start, end = highlight(text, "museum hall") or (0, 0)
    assert text[start:end] == "It is now shown in hall\nNo. 5 of the museum."


def test_hits_carry_the_position_of_their_best_sentence(
    reader: StoreReader, embedder: HashingEmbedder
) -> None:
    hit = search(reader, embedder, ask("long walk", mode=Mode.KEYWORD, k=1)).hits[0]
    assert hit.key == "boots"
    start, end = hit.highlight or (0, 0)
    assert hit.text[start:end] == "They go with any jacket on a long walk."
    assert hit.as_dict()["highlight"] == [start, end]


def test_words_are_compared_without_case_and_accents() -> None:
    assert words_of("Café-Crème, STRASSE/straße") == ["cafe", "creme", "strasse", "strasse"]


def test_rarer_words_and_shorter_texts_count_for_more() -> None:
    scores = relevance(["red wine", "red", "red smoky", "", None, "blue"], "red smoky")
    assert np.argmax(scores) == 2
    assert scores[1] > scores[0] > 0
    assert scores[3:].tolist() == [0, 0, 0]
