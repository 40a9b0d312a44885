"""The local re-ranker: a cross-encoder from a folder, on onnxruntime, without torch."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from lakewake.config.file import parse_config
from lakewake.config.settings import RerankSettings
from lakewake.errors import ConfigError, EmbedError, SetupError
from lakewake.rerank import load_reranker
from support.cross_encoder import make_cross_encoder, shared_words
from support.serving import asking, wine_index

IDENTITY = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
TEXTS = ["fresh white with citrus", "smoky red with leather", "", "wine " * 300, "smoky smoky"]


def load(folder: Path) -> Any:
    return load_reranker(RerankSettings(provider="onnx", name=str(folder)))


def test_each_text_is_scored_with_the_question_and_in_order(tmp_path: Path) -> None:
    found = load(make_cross_encoder(tmp_path / "tiny", **IDENTITY)).score("smoky red", TEXTS)
    assert found == [float(shared_words("smoky red", text)) for text in TEXTS]
    assert found == [0, 2, 0, 0, 2]


def test_a_score_does_not_depend_on_the_texts_beside_it(tmp_path: Path) -> None:
    reranker = load(make_cross_encoder(tmp_path / "tiny", **IDENTITY))
    alone = [reranker.score("red wine", [text])[0] for text in TEXTS * 8]
    assert reranker.score("red wine", TEXTS * 8) == alone
    assert reranker.score("red wine", []) == []


def test_scores_are_between_0_and_1_unless_the_model_is_meant_otherwise(tmp_path: Path) -> None:
    found = load(make_cross_encoder(tmp_path / "tiny")).score("smoky red", TEXTS)
    assert found == pytest.approx([1 / (1 + math.exp(-n)) for n in (0, 2, 0, 0, 2)])
    far = load(make_cross_encoder(tmp_path / "far", bias=-1e4)).score("red", ["red"])
    assert far == [0.0]


def test_a_question_longer_than_the_model_reads_is_cut_like_the_text(tmp_path: Path) -> None:
    folder = make_cross_encoder(tmp_path / "tiny", **IDENTITY)
    assert load(folder).score("red " * 1000, ["white " * 1000, "red"]) == [0.0, 60.0]


def test_several_threads_share_one_model(tmp_path: Path) -> None:
    reranker = load(make_cross_encoder(tmp_path / "tiny", **IDENTITY))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: reranker.score("smoky red", TEXTS), range(20)))
    assert found == [[0, 2, 0, 0, 2]] * 20


def test_odd_texts_are_scored(tmp_path: Path) -> None:
    reranker = load(make_cross_encoder(tmp_path / "tiny", **IDENTITY))
    assert reranker.score("\ud800 red", ["red \udfff", "\0", "🍷"]) == [1.0, 0.0, 0.0]


def test_a_search_is_reranked_by_the_folder_in_the_configuration(tmp_path: Path) -> None:
    make_cross_encoder(tmp_path / "tiny")
    text = """
        [[index]]
        name = "sample"
        table = "table"
        text = "{txt}"
        rerank = {provider = "onnx", name = "./tiny", rows = 3}
    """
    chosen = parse_config(text, tmp_path / "lakewake.toml").indexes[0].rerank
    assert chosen == RerankSettings("onnx", str(tmp_path / "tiny"), rows=3)
    index, _ = wine_index()
    plain = [hit.key for hit in index.search("a honey tent", k=3).hits]
    index.settings = replace(index.settings, rerank=chosen)
    with asking(index) as client:
        body = {"text": "citrus citrus", "k": 3}
        hits = client.post("/indexes/sample/search", json=body).json()["hits"]
        off = client.post("/indexes/sample/search", json={**body, "rerank": False}).json()["hits"]
        few = client.post("/indexes/sample/recommend", json={"query": "honey", "min_score": 0.6})
    assert hits[0]["key"] == "fresh"
    assert hits[0]["score"] == pytest.approx(1 / (1 + math.exp(-2)))
    assert {hit["score"] for hit in hits[1:]} == {0.5}
    assert {hit["key"] for hit in off} == {*plain}
    assert [hit["key"] for hit in few.json()["hits"]] == ["sweet"]


def test_a_name_is_needed_for_a_local_reranker(tmp_path: Path) -> None:
    text = '[[index]]\nname="a"\ntable="t"\ntext="{x}"\nrerank = {provider = "onnx"}'
    with pytest.raises(ConfigError, match='"onnx" needs `name`'):
        parse_config(text, tmp_path / "lakewake.toml")


@pytest.mark.parametrize("missing", ["model.onnx", "tokenizer.json", "config.json"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    folder = make_cross_encoder(tmp_path / "tiny")
    (folder / missing).unlink()
    with pytest.raises(SetupError, match=missing) as refused:
        load(folder).score("q", ["a"])
    assert "export a cross-encoder" in refused.value.hint


@pytest.mark.parametrize(
    ("config", "fact"),
    [
        ({"num_labels": 3}, "several labels"),
        (
            {"sentence_transformers": {"activation_fn": "torch.nn.Softmax"}},
            "has the activation Softmax",
        ),
    ],
)
def test_a_model_of_another_kind_is_refused(
    tmp_path: Path, config: dict[str, Any], fact: str
) -> None:
    with pytest.raises(SetupError, match=fact) as refused:
        load(make_cross_encoder(tmp_path / "tiny", **config)).score("q", ["a"])
    assert refused.value.hint


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "config.json"])
def test_a_damaged_file_is_an_error_with_a_hint(tmp_path: Path, name: str) -> None:
    folder = make_cross_encoder(tmp_path / "tiny")
    (folder / name).write_bytes(b"\xff\x00 not this")
    with pytest.raises(SetupError) as refused:
        load(folder).score("q", ["a"])
    assert refused.value.hint


def test_scores_that_are_not_numbers_are_an_error(tmp_path: Path) -> None:
    folder = make_cross_encoder(tmp_path / "tiny", bias=math.nan, **IDENTITY)
    with pytest.raises(EmbedError, match="not a finite number") as refused:
        load(folder).score("q", ["a"])
    assert "--no-rerank" in refused.value.hint


def test_a_graph_with_other_inputs_or_outputs_is_refused(tmp_path: Path) -> None:
    folder = make_cross_encoder(tmp_path / "tiny")
    graph = onnx.load(folder / "model.onnx")
    graph.graph.output[0].name = "in_text"
    graph.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "length"
    onnx.save(graph, folder / "model.onnx")
    with pytest.raises(SetupError, match="expected one for each"):
        load(folder).score("q", ["a"])


def test_the_largest_length_is_that_of_model_and_tokenizer(tmp_path: Path) -> None:
    from lakewake.rerank.onnx import load as loaded

    folder = make_cross_encoder(tmp_path / "tiny", model_type="xlm-roberta")
    assert loaded(folder).tokenizer.truncation["max_length"] == 62
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 16}))
    assert loaded(folder).tokenizer.truncation["max_length"] == 16
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 10**30}))
    assert loaded(folder).tokenizer.truncation["max_length"] == 62
