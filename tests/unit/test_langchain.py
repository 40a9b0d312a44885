"""The retriever and the read-only vector store: LangChain's own suite, and our tests."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_tests.integration_tests import RetrieversIntegrationTests

import lakewake
from lakewake.errors import ConfigError, FilterError, IndexMissing
from lakewake.langchain import LakewakeRetriever, LakewakeVectorStore, most_diverse
from lakewake.model.query import RowChunk, SearchResult
from lakewake.model.rows import RowId
from lakewake.search.rows import whole_text
from lakewake.search.view import View
from support.cellar import FIRST, WINES, make_cellar
from support.sampling import rid, values
from support.serving import wine_index

QUERY = "smoky red with leather and old wood"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cellar(tmp_path_factory.mktemp("cellar"))


@pytest.fixture(scope="module")
def chunked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same wines, split into chunks that overlap."""
    return make_cellar(tmp_path_factory.mktemp("chunked"), "{tokens = 7, overlap = 3}")


@pytest.fixture
def store(config: Path) -> LakewakeVectorStore:
    return LakewakeVectorStore("wines", config)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
class TestLangChainsOwnSuite(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _cellar(self, config: Path) -> None:
        self.config = config

    @property
    def retriever_constructor(self) -> type[LakewakeRetriever]:
        return LakewakeRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"index": "wines", "config": self.config}

    @property
    def retriever_query_example(self) -> str:
        return QUERY


def keys(documents: list[Document]) -> list[str]:
    return [document.metadata["key"] for document in documents]


def test_a_document_is_the_best_chunk_with_payload_and_row(config: Path) -> None:
    (document,) = LakewakeRetriever(index="wines", config=config, k=1).invoke(WINES["fresh"][0])
    assert document.page_content == WINES["fresh"][0]
    assert document.id == '["red","fresh","text",0]'
    metadata = document.metadata
    assert (metadata["country"], metadata["price"], metadata["instant"]) == ("France", 12.0, FIRST)
    assert {k: metadata[k] for k in ("key", "partition", "field", "chunk")} == {
        "key": "fresh",
        "partition": "red",
        "field": "text",
        "chunk": 0,
    }
    assert metadata["score"] == metadata["similarity"] == pytest.approx(1.0)


def test_a_payload_column_with_a_name_of_ours_is_kept_beside_it(config: Path) -> None:
    (document,) = LakewakeRetriever(index="wines", config=config, k=1).invoke(WINES["fresh"][0])
    assert document.metadata["payload.score"] == 92
    assert document.metadata["score"] == pytest.approx(1.0)


def test_an_open_index_can_be_passed(config: Path) -> None:
    index = lakewake.open(config)["wines"]
    assert keys(LakewakeRetriever(index=index, k=1).invoke(QUERY)) == ["smoky"]
    assert LakewakeVectorStore(index).index is index


@pytest.mark.parametrize("where", ["country = 'France'", {"country": "France"}])
def test_rows_are_filtered_by_text_and_by_json(config: Path, where: Any) -> None:
    retriever = LakewakeRetriever(index="wines", config=config)
    assert keys(retriever.invoke(QUERY, where=where)) == ["fresh"]
    assert keys(LakewakeRetriever(index="wines", config=config, where=where).invoke(QUERY)) == [
        "fresh"
    ]
    assert keys(LakewakeVectorStore("wines", config).similarity_search(QUERY, filter=where)) == [
        "fresh"
    ]


def test_an_invalid_filter_is_refused_with_a_hint(store: LakewakeVectorStore) -> None:
    with pytest.raises(FilterError, match="no payload column 'contry'"):
        store.similarity_search(QUERY, filter={"contry": "Italy"})


def test_an_unknown_argument_is_refused_instead_of_ignored(
    store: LakewakeVectorStore,
) -> None:
    with pytest.raises(ConfigError, match="unknown argument 'where'") as refused:
        store.similarity_search(QUERY, where={"country": "France"})
    assert "filter" in refused.value.hint


def test_a_wrong_name_is_an_error_when_the_retriever_is_created(config: Path) -> None:
    with pytest.raises(ConfigError, match="no index 'wine'"):
        LakewakeRetriever(index="wine", config=config)


def test_rows_are_found_by_keyword_and_hybrid_search(config: Path) -> None:
    retriever = LakewakeRetriever(index="wines", config=config, mode="keyword")
    found = retriever.invoke("tobacco")
    assert set(keys(found)) == {"smoky", "smokier"}
    assert [document.metadata["similarity"] for document in found] == [None, None]
    assert len(retriever.invoke("tobacco", mode="hybrid")) == len(WINES)
    store = LakewakeVectorStore("wines", config)
    assert set(keys(store.similarity_search("tobacco", mode="keyword"))) == {"smoky", "smokier"}
    words = store.similarity_search_with_relevance_scores("tobacco", mode="keyword")
    assert [relevance for _, relevance in words] == [0.0, 0.0]


def test_rows_below_the_score_threshold_are_left_out(config: Path) -> None:
    text = WINES["fresh"][0]
    retriever = LakewakeRetriever(index="wines", config=config, min_score=0.99)
    assert keys(retriever.invoke(text)) == ["fresh"]
    assert len(retriever.invoke(text, min_score=-1.0)) == len(WINES)
    store = LakewakeVectorStore("wines", config)
    assert keys(store.similarity_search(text, min_score=0.99)) == ["fresh"]
    assert keys(store.max_marginal_relevance_search(text, min_score=0.99)) == ["fresh"]


def test_the_asynchronous_methods_return_the_same_as_the_synchronous_ones(config: Path) -> None:
    retriever = LakewakeRetriever(index="wines", config=config)
    store = LakewakeVectorStore("wines", config)

    async def ask() -> list[list[str]]:
        one = await retriever.ainvoke(QUERY, k=2, where={"country": "Italy"})
        two = await store.asimilarity_search(QUERY, k=2, filter={"country": "Italy"})
        three = await store.amax_marginal_relevance_search(QUERY, k=2, fetch_k=2)
        four = await store.aget_by_ids(['["red","smoky"]'])
        five = await store.asimilarity_search_with_relevance_scores(QUERY, k=2)
        return [keys(found) for found in (one, two, three, four, [d for d, _ in five])]

    near = ["smoky", "smokier"]
    assert asyncio.run(ask()) == [near, near, near, ["smoky"], near]


def test_scores_are_similarities_best_first(store: LakewakeVectorStore) -> None:
    found = store.similarity_search_with_score(QUERY, k=5)
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    assert [document.metadata["score"] for document, _ in found] == scores


def test_relevance_is_between_0_and_1(store: LakewakeVectorStore) -> None:
    found = store.similarity_search_with_relevance_scores(WINES["fresh"][0], k=5)
    assert found[0][1] == pytest.approx(1.0)
    assert all(0.0 <= relevance <= 1.0 for _, relevance in found)
    far = store.similarity_search_with_relevance_scores(QUERY, k=5, score_threshold=0.99)
    assert far == []


def test_a_vector_of_the_indexs_model_can_be_searched_for(store: LakewakeVectorStore) -> None:
    vector = store.index.embedder.embed([WINES["sweet"][0]])[0].tolist()
    assert keys(store.similarity_search_by_vector(vector, k=1)) == ["sweet"]
    assert keys(store.max_marginal_relevance_search_by_vector(vector, k=1)) == ["sweet"]


def test_marginal_relevance_leaves_out_near_duplicates(store: LakewakeVectorStore) -> None:
    assert keys(store.similarity_search(QUERY, k=2)) == ["smoky", "smokier"]
    first, second = keys(store.max_marginal_relevance_search(QUERY, k=2, lambda_mult=0.3))
    assert first == "smoky"
    assert second != "smokier"
    closest = store.max_marginal_relevance_search(QUERY, k=2, lambda_mult=1.0)
    assert keys(closest) == ["smoky", "smokier"]


def test_marginal_relevance_equals_that_of_langchain() -> None:
    from langchain_core.vectorstores.utils import maximal_marginal_relevance

    random = np.random.default_rng(7)
    vectors = random.normal(size=(30, 8)).astype(np.float32)
    query = random.normal(size=8).astype(np.float32)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    near = (units @ (query / np.linalg.norm(query))).tolist()
    for share in (0.0, 0.3, 0.5, 0.9, 1.0):
        theirs = maximal_marginal_relevance(query, vectors.tolist(), share, k=10)
        assert most_diverse(list(vectors), near, 10, share) == theirs


def test_every_search_type_makes_a_retriever(store: LakewakeVectorStore) -> None:
    plain = store.as_retriever(search_kwargs={"k": 2, "filter": {"country": "Italy"}})
    assert keys(plain.invoke(QUERY)) == ["smoky", "smokier"]
    diverse = store.as_retriever(search_type="mmr", search_kwargs={"k": 2, "lambda_mult": 0.3})
    assert keys(diverse.invoke(QUERY))[0] == "smoky"
    sure = store.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.99}
    )
    assert keys(sure.invoke(WINES["fresh"][0])) == ["fresh"]


def test_a_document_is_found_again_by_its_id(store: LakewakeVectorStore) -> None:
    found = store.similarity_search(QUERY, k=5)
    again = {document.id: document for document in store.get_by_ids([d.id for d in found])}
    assert set(again) == {document.id for document in found}
    for document in found:
        assert again[document.id].page_content == document.page_content
        found_by = {"score", "similarity"}
        own = {k: v for k, v in document.metadata.items() if k not in found_by}
        assert again[document.id].metadata == own


@pytest.mark.parametrize(
    "id",
    [
        "",
        "smoky",
        "[",
        "{}",
        "[1,2]",
        '["red"]',
        '["red","gone"]',
        '["white","smoky"]',
        '["red","smoky","text",9]',
        '["red","smoky","title",0]',
        '[ "red", "smoky" ]',
        "[" * 100_000,
    ],
)
def test_an_unknown_id_returns_nothing(store: LakewakeVectorStore, id: str) -> None:
    assert store.get_by_ids([id]) == []
    assert keys(store.get_by_ids([id, '["red","fresh"]'])) == ["fresh"]


def test_a_whole_row_is_joined_from_its_chunks(chunked: Path) -> None:
    index = lakewake.open(chunked)["wines"]
    with index.view() as view:
        _, chunks = view.counts()
    assert chunks > len(WINES)
    text = WINES["fresh"][0]
    whole = LakewakeVectorStore(index, whole_row=True)
    (document,) = whole.similarity_search(text, k=1)
    assert (document.id, document.page_content) == ('["red","fresh"]', text)
    assert whole.get_by_ids([document.id])[0].page_content == text
    assert whole.max_marginal_relevance_search(text, k=1)[0].page_content == text
    (best,) = LakewakeVectorStore(index).similarity_search(text, k=1)
    assert best.page_content in text
    assert best.page_content != text


def test_the_retriever_can_return_whole_rows(chunked: Path) -> None:
    retriever = LakewakeRetriever(index="wines", config=chunked, k=5, whole_row=True)
    found = {document.metadata["key"]: document.page_content for document in retriever.invoke("x")}
    assert found == {key: text for key, (text, *_) in WINES.items()}


def test_all_chunks_of_a_row_are_returned_in_order(chunked: Path) -> None:
    rows = [RowId("red", "smoky"), RowId("red", "gone"), RowId("white", "smoky")]
    with lakewake.open(chunked)["wines"].view() as view:
        held = view.rows(rows)
        assert view.rows([]) == {}
    assert list(held) == [RowId("red", "smoky")]
    numbers = [chunk.chunk for chunk in held[RowId("red", "smoky")].chunks]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 1


@pytest.mark.parametrize(
    ("texts", "overlap", "whole"),
    [
        (["one two", "three"], False, "one two three"),
        (["the red", "dark one"], False, "the red dark one"),
        (["the red", "dark one"], True, "the red dark one"),
        (["one two three", "two three four"], True, "one two three four"),
        (["one two", "two one", "one three"], True, "one two one three"),
        (["the red", "reddish one"], True, "the red reddish one"),
        (["it is rare", "are they"], True, "it is rare are they"),
        (["one"], True, "one"),
        ([], True, ""),
    ],
)
def test_joined_chunks_contain_their_overlap_once(
    texts: list[str], overlap: bool, whole: str
) -> None:
    chunks = [RowChunk("text", n, text) for n, text in enumerate(texts)]
    assert whole_text(chunks, overlap=overlap) == whole


def test_texts_of_several_fields_are_paragraphs() -> None:
    chunks = [RowChunk("a", 0, "x"), RowChunk("b", 0, "y"), RowChunk("a", 1, "z")]
    assert whole_text(chunks, overlap=False) == "x z\n\ny"


def test_an_answer_is_never_mixed_from_two_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    index, table = wine_index()
    answer = View.answer

    def answer_and_commit(view: View, *asked: Any, **how: Any) -> SearchResult:
        result = answer(view, *asked, **how)
        table.upsert({rid("smoky"): values("a later text")})
        index.sync()
        return result

    monkeypatch.setattr(View, "answer", answer_and_commit)
    before = index.status().instant
    whole = LakewakeVectorStore(index, whole_row=True)
    for ask in (whole.similarity_search, whole.max_marginal_relevance_search):
        (document,) = ask("smoky red with leather", k=1)
        assert document.metadata["instant"] == before
        assert document.page_content == "smoky red with leather"
        assert index.status().instant > before
        table.upsert({rid("smoky"): values("smoky red with leather")})
        index.sync()
        before = index.status().instant


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.add_texts(["x"]),
        lambda store: store.add_documents([Document(page_content="x")]),
        lambda store: store.delete(['["red","smoky"]']),
        lambda store: asyncio.run(store.aadd_texts(["x"])),
        lambda store: asyncio.run(store.adelete(["x"])),
        lambda store: type(store).from_texts(["x"], None),
    ],
)
def test_a_write_is_refused_with_a_hint_that_names_the_table(
    store: LakewakeVectorStore, write: Any
) -> None:
    with pytest.raises(ConfigError, match="source of truth") as refused:
        write(store)
    assert "write to the Hudi table" in refused.value.hint
    assert len(store.similarity_search("x", k=9)) == len(WINES)


def test_an_index_that_is_not_built_yet_is_an_error(tmp_path: Path, config: Path) -> None:
    (tmp_path / "lakewake.toml").write_text(config.read_text())
    store = LakewakeVectorStore("wines", tmp_path / "lakewake.toml")
    for ask in (store.similarity_search, lambda q: store.get_by_ids([q])):
        with pytest.raises(IndexMissing, match="no index 'wines' yet"):
            ask("x")


MISSING = """
import sys
sys.modules[{package!r}] = None
from lakewake.errors import SetupError
try:
    import {module}
except SetupError as error:
    print(error.fact, "|", error.hint)
"""


@pytest.mark.parametrize(
    ("package", "module", "extra"),
    [("langchain_core", "lakewake.langchain", "langchain"), ("mcp", "lakewake.mcp", "mcp")],
)
def test_a_missing_extra_is_named_with_how_to_install_it(
    package: str, module: str, extra: str
) -> None:
    code = MISSING.format(package=package, module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install 'lakewake[{extra}]'" in done.stdout
    assert "is not installed" in done.stdout


def test_importing_lakewake_imports_no_extra() -> None:
    code = "import json, sys, lakewake, lakewake.api, lakewake.cli, lakewake.search"
    code += "; print(json.dumps([m.partition('.')[0] for m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extras = {"langchain_core", "mcp", "pydantic", "fastapi", "qdrant_client", "prometheus_client"}
    assert not extras & set(json.loads(done.stdout))
