"""lakewake.toml: what it means, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakewake.config.embedding_store import EMBEDDING_STORE_KEYS
from lakewake.config.file import load_config, parse_config
from lakewake.config.index import INDEX_KEYS
from lakewake.config.models import MODEL_KINDS, RERANK_KINDS
from lakewake.config.recommend import KINDS
from lakewake.config.serve import SERVE_KEYS
from lakewake.config.settings import (
    EmbeddingStoreSettings,
    IndexSettings,
    ModelSettings,
    RerankSettings,
    Settings,
)
from lakewake.errors import ConfigError
from lakewake.model.ann import Ann
from lakewake.model.canaries import CanarySettings
from lakewake.model.fusion import Fusion
from lakewake.model.keep import Keep
from lakewake.model.recipe import Chunking, TextField
from support import ROOT

FILE = Path("/proj/conf/lakewake.toml")
WINES = """
[[index]]
name = "wines"
table = "lake/wine_reviews"
"""
TEXT = WINES + 'text = "{title}. {description}"\n'


def parse(text: str) -> Settings:
    return parse_config(text, FILE)


def only(text: str) -> IndexSettings:
    (index,) = parse(text).indexes
    return index


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.exit_code == 2
    assert caught.value.landed == "nothing was written"
    return caught.value


def test_the_smallest_index_gets_every_default():
    assert only(TEXT) == IndexSettings(
        name="wines",
        table="/proj/conf/lake/wine_reviews",
        store="lance:///proj/conf/index",
        fields=(TextField("text", "{title}. {description}"),),
        embedding_store=EmbeddingStoreSettings("/proj/conf/index", 10_000),
    )


def test_every_key_is_read():
    index = only(
        TEXT
        + """
        payload = ["title", "price"]
        store = "lance://../idx"
        chunk = {tokens = 200, overlap = 40}
        model = {provider = "http", name = "m", url = "http://h/v1", dimension = 8, timeout = 5}
        metric = "cosine"
        embedding_store = false
        freshness = "30s"
        """
    )
    assert index == IndexSettings(
        name="wines",
        table="/proj/conf/lake/wine_reviews",
        store="lance:///proj/idx",
        fields=(TextField("text", "{title}. {description}"),),
        payload=("title", "price"),
        chunking=Chunking(200, 40),
        model=ModelSettings("http", "m", dimension=8, url="http://h/v1", timeout=5.0),
        embedding_store=None,
        freshness=30.0,
    )


def test_an_index_in_the_lake_has_a_folder_of_its_own():
    lake = WINES + 'text = "{title}"\nstore = "hudi://index"\n'
    other = lake.replace('"wines"', '"other"')
    error = refused(lake + other)
    assert "'wines' and 'other' are both in hudi:///proj/conf/index" in error.fact
    assert "hudi:///proj/conf/index/other" in error.hint
    assert "are both in" in refused(lake + other.replace("//index", "//./index/")).fact
    for elsewhere in ("hudi://index/other", "lance://index"):
        assert len(parse(lake + other.replace("hudi://index", elsewhere)).indexes) == 2


@pytest.mark.parametrize("name", ["größe", "1st", "in stock", "price-usd"])
def test_a_payload_column_that_hudi_rs_cannot_read_is_refused_in_the_lake(name: str):
    payload = f'payload = ["price", "{name}"]\n'
    error = refused(TEXT + payload + 'store = "hudi://index"\n')
    assert f"payload column '{name}' cannot be in an index in the lake" in error.fact
    assert only(TEXT + payload).payload == ("price", name)


def test_the_share_of_rows_that_a_sync_may_remove_is_from_0_to_1():
    assert only(TEXT).max_delete == 0.5
    assert [only(TEXT + f"max_delete = {s}\n").max_delete for s in ("0", "0.25", "1")] == [
        0,
        0.25,
        1,
    ]
    for share in ("-0.1", "1.1", "50", "nan"):
        error = refused(TEXT + f"max_delete = {share}\n")
        assert "expected a share from 0 to 1" in error.fact
        assert "max_delete = 0.5" in error.hint
    assert "expected a number" in refused(TEXT + 'max_delete = "50%"\n').fact


@pytest.mark.parametrize(
    ("written", "recall"), [("", 0.99), ("recall = 0.95", 0.95), ("recall = 1", 1.0)]
)
def test_recall_is_a_number_from_0_to_1(written: str, recall: float):
    assert only(TEXT + written).recall == recall


@pytest.mark.parametrize(
    "written", ["0", "0.0", "-0.5", "1.01", "99", "nan", "inf", '"0.9"', "true"]
)
def test_an_invalid_recall_is_refused(written: str):
    assert "`recall` is " in refused(TEXT + f"recall = {written}\n").fact


@pytest.mark.parametrize(
    ("written", "ann"),
    [
        ("", Ann("auto", 100_000)),
        ('ann = {kind = "IVF_SQ", from = 10}', Ann("ivf_sq", 10)),
        ('ann = {kind = "flat"}', Ann("flat", 100_000)),
        ("ann = {from = 5000}", Ann("auto", 5_000)),
    ],
)
def test_ann_is_a_kind_and_a_size(written: str, ann: Ann):
    assert only(TEXT + written).ann == ann


@pytest.mark.parametrize(
    ("written", "fact"),
    [
        ('ann = "ivf_rq"', "`ann` is not a table"),
        ("ann = {from = 0}", "`from` is 0, expected 1 or more"),
        ("ann = {form = 5}", "unknown key `form`"),
        ("ann = {kind = 5}", "`kind` is a whole number"),
        ('ann = {kind = " "}', "`kind` is blank"),
    ],
)
def test_an_invalid_ann_is_refused(written: str, fact: str):
    assert fact in refused(TEXT + written + "\n").fact


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ('"30s"', 30.0),
        ('"1.5 m"', 90.0),
        ('"2h"', 7200.0),
        ('"1d"', 86_400.0),
        ("45", 45.0),
        ("0.5", 0.5),
    ],
)
def test_a_freshness_has_a_unit_or_is_in_seconds(written: str, seconds: float):
    assert only(TEXT + f"freshness = {written}\n").freshness == seconds


@pytest.mark.parametrize(
    "written",
    ['"30"', '"soon"', '"5 weeks"', '"-1s"', '"0s"', '""', "0", "-3", "nan", "inf", "true", "[1]"],
)
def test_an_invalid_freshness_is_refused_with_an_example(written: str):
    error = refused(TEXT + f"freshness = {written}\n")
    assert "`freshness` is " in error.fact
    assert 'freshness = "30s"' in error.hint


def stores(text: str) -> list[EmbeddingStoreSettings | None]:
    return [i.embedding_store for i in parse(text).indexes]


def test_all_indexes_share_the_vector_cache_beside_the_first():
    second = TEXT.replace('"wines"', '"beers"') + 'store = "lance://elsewhere"\n'
    first = TEXT + 'store = "lance://idx"\n'
    assert stores(first + second) == [EmbeddingStoreSettings("/proj/conf/idx", 10_000)] * 2


def test_indexes_in_s3_share_a_local_vector_cache():
    remote = TEXT + 'store = "lance+s3://bucket/idx"\n'
    local = TEXT.replace('"wines"', '"beers"') + 'store = "lance://elsewhere"\n'
    assert stores(remote) == [EmbeddingStoreSettings("/proj/conf/index")]
    assert stores(remote + local) == [EmbeddingStoreSettings("/proj/conf/elsewhere")] * 2


def test_the_vector_cache_has_its_own_folder_and_bound():
    table = '[embedding_store]\nfolder = "../kept"\nmax_mb = 5\n'
    assert stores(TEXT + table) == [EmbeddingStoreSettings("/proj/kept", 5)]


def test_the_vector_cache_can_be_switched_off_for_all_or_for_one():
    one = TEXT + "embedding_store = false\n"
    other = TEXT.replace('"wines"', '"beers"')
    assert stores("embedding_store = false\n" + TEXT + other) == [None, None]
    assert stores("embedding_store = true\n" + one + other) == [
        None,
        EmbeddingStoreSettings("/proj/conf/index", 10_000),
    ]


def test_vectors_from_the_table_need_no_vector_cache():
    assert stores(WINES + 'vector = "e"\ndimension = 3\n') == [None]


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("embedding_store = 3", "`embedding_store` is a whole number, expected a table, true or"),
        ("embedding_store = {max_mb = 0}", "`max_mb` is 0, expected 1 or more"),
        ("embedding_store = {max_mb = 1.5}", "`max_mb` is a number, expected a whole number"),
        ("embedding_store = {folder = ' '}", "`folder` is blank"),
        ("embedding_store = {max = 3}", "unknown key `max`"),
    ],
)
def test_an_invalid_vector_cache_is_refused(line: str, fact: str):
    assert fact in refused(line + "\n" + TEXT).fact


def test_a_list_of_texts_makes_one_field_each():
    index = only(
        WINES + 'text = [{column = "title"}, {name = "story", template = "{title}: {body}"}]\n'
    )
    assert index.fields == (
        TextField("title", "{title}"),
        TextField("story", "{title}: {body}"),
    )


def test_a_text_field_may_have_a_weight():
    fields = 'text = [{column = "title", weight = 2}, {name = "b", template = "{b}", weight = 0.5}]'
    index = only(WINES + fields)
    assert index.weights == {"title": 2.0, "b": 0.5}
    assert index.fields == (TextField("title", "{title}"), TextField("b", "{b}"))
    assert only(TEXT).weights == {}


def test_hits_are_reranked_by_the_configured_reranker():
    index = only(TEXT + 'rerank = {url = "http://localhost:8080", name = "r", rows = 50}')
    assert index.rerank == RerankSettings(url="http://localhost:8080", name="r", rows=50)
    folder = only(TEXT + 'rerank = {provider = "cross-encoder", name = "./tiny"}').rerank
    assert folder is not None
    assert folder.name.endswith("/tiny")
    assert folder.name.startswith("/")
    assert only(TEXT).rerank is None


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("rerank = 'x'", "`rerank` is a string, expected a table"),
        ("rerank = {}", 'provider "http" needs `url`'),
        ("rerank = {url = 'localhost'}", "`url` is not an address"),
        ("rerank = {provider = 'cross-encoder'}", 'provider "cross-encoder" needs `name`'),
        ("rerank = {provider = 'magic'}", "`provider` is 'magic'"),
        ("rerank = {url = 'http://x', rows = 0}", "`rows` is 0, expected 1 or more"),
        ("rerank = {url = 'http://x', timeout = 0}", "expected more than 0 seconds"),
        ("rerank = {url = 'http://x', key = 's'}", "secrets do not belong in this file"),
        ("rerank = {url = 'http://x', row = 3}", "unknown key `row`"),
    ],
)
def test_an_invalid_rerank_is_refused(line: str, fact: str):
    assert fact in refused(TEXT + line).fact


def test_canaries_are_a_file_or_a_table_with_one():
    assert only(TEXT).canaries is None
    plain = only(TEXT + 'canaries = "c.jsonl"\n').canaries
    assert plain == CanarySettings("/proj/conf/c.jsonl", "hybrid", 0.05)
    whole = only(TEXT + 'canaries = {file = "/c.jsonl", mode = "keyword", drop = 0.1}\n').canaries
    assert whole == CanarySettings("/c.jsonl", "keyword", 0.1)
    for wrong in (
        '""',
        "7",
        "{}",
        '{mode = "hybrid"}',
        '{file = "c", drop = 2}',
        '{file = "c", x = 1}',
    ):
        assert refused(f"{TEXT}canaries = {wrong}\n").hint
    assert refused(TEXT + 'canaries = {file = "c", mode = "nearest"}\n').hint


def test_the_fusion_of_a_hybrid_search_has_a_method_and_a_share():
    assert only(TEXT).hybrid == Fusion("scores", 0.5)
    assert only(TEXT + 'hybrid = {fusion = "ranks"}').hybrid == Fusion("ranks", 0.5)
    assert only(TEXT + "hybrid = {vector = 0.8}").hybrid == Fusion("scores", 0.8)
    for wrong in ("{vector = 2}", "{vector = nan}", '{fusion = "sum"}', "{share = 1}", "0.5"):
        assert refused(f"{TEXT}hybrid = {wrong}").hint


def test_a_language_applies_to_all_text_fields_or_to_one():
    fields = 'text = [{column = "title"}, {name = "b", template = "{b}", language = "german"}]\n'
    assert only(WINES + fields).languages == {"b": "german"}
    assert only(WINES + fields + 'language = "english"').languages == {
        "title": "english",
        "b": "german",
    }
    assert only(TEXT).languages == {}
    assert only(TEXT + 'language = "auto"\n').languages == {}
    assert only(TEXT + 'language = "none"\n').languages == {"text": "none"}
    refusal = refused(TEXT + 'language = "klingon"\n')
    assert "'klingon'" in refusal.fact
    assert "english" in refusal.hint


@pytest.mark.parametrize("weight", ["0", "-1", "'x'", "true", "1e9", "nan"])
def test_an_invalid_weight_is_refused(weight: str):
    assert "`weight` is" in refused(WINES + f"text = [{{column = 'a', weight = {weight}}}]").fact


def test_a_vector_column_takes_its_dimension_from_the_index():
    index = only(WINES + 'vector = "embedding"\ndimension = 384\n')
    assert index.vector == "embedding"
    assert index.fields == ()
    assert index.model == ModelSettings(provider="column", name="embedding", dimension=384)


def test_a_vector_column_may_name_the_model_that_made_it():
    index = only(WINES + 'vector = "embedding"\nmodel = "all-MiniLM-L6-v2"\n')
    assert index.model == ModelSettings(name="all-MiniLM-L6-v2")


def test_the_default_model_is_not_assumed_to_have_made_a_vector_column():
    index = only('model = "big"\n' + WINES + 'vector = "embedding"\ndimension = 384\n')
    assert index.model.provider == "column"


def test_a_top_level_model_is_the_default_and_an_index_replaces_it_whole():
    text = (
        '[model]\nprovider = "hashing"\ndimension = 64\n'
        + TEXT
        + TEXT.replace('"wines"', '"other"')
        + 'model = "all-MiniLM-L6-v2"\n'
    )
    first, second = parse(text).indexes
    assert first.model == ModelSettings(provider="hashing", dimension=64)
    assert second.model == ModelSettings(name="all-MiniLM-L6-v2")


def test_a_model_folder_and_a_tokenizer_are_relative_to_the_file():
    index = only(TEXT + 'model = {name = "./weights", tokenizer = "tok/tokenizer.json"}\n')
    assert index.model.name == "/proj/conf/weights"
    assert index.model.tokenizer == "/proj/conf/tok/tokenizer.json"


@pytest.mark.parametrize("table", ["s3a://bucket/t", "gs://b/t", "hdfs://n:8020/t", "/abs/t"])
def test_uris_and_absolute_paths_stay_unchanged(table: str):
    text = "untested_schemes = true\n" + TEXT.replace("lake/wine_reviews", table)
    assert only(text).table == table


def test_a_qdrant_folder_is_relative_to_the_file_and_the_vector_cache_is_beside_it():
    index = only(TEXT + 'store = "qdrant+local://index"\n')
    assert index.store == "qdrant+local:///proj/conf/index"
    assert index.embedding_store == EmbeddingStoreSettings("/proj/conf/index", 10_000)


@pytest.mark.parametrize("scheme", ["qdrant", "qdrants", "qdrant+https"])
def test_an_index_that_moves_to_a_qdrant_server_keeps_its_vector_cache(scheme: str):
    index = only(TEXT + f'store = "{scheme}://host:6333/wines"\n')
    assert index.embedding_store == only(TEXT).embedding_store


def test_a_key_in_the_address_of_a_store_is_refused_and_not_shown():
    with pytest.raises(ConfigError) as error:
        only(TEXT + 'store = "qdrants://user:s3cr3t@host:6333/w"\n')
    assert "s3cr3t" not in str(error.value)
    assert "QDRANT_API_KEY" in error.value.hint


def test_addresses_of_remote_stores_stay_unchanged():
    assert only(TEXT + 'store = "qdrant://h:6333/w"\n').store == "qdrant://h:6333/w"
    assert only(TEXT + 'store = "lance://s3://b/i"\n').store == "lance://s3://b/i"


def test_spark_options_are_flattened_and_prefixed():
    text = (
        TEXT
        + '[spark]\nmaster = "local[2]"\nsql.shuffle.partitions = 4\n"spark.ui.enabled" = true\n'
    )
    assert parse(text).spark == {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "true",
    }


def test_a_toml_error_names_the_file_and_the_line():
    error = refused('[[index]]\nname = "a"\ntable "b"\n')
    assert str(FILE) in error.fact
    assert "line 3" in error.fact


@pytest.mark.parametrize(
    ("text", "key", "guess"),
    [
        (TEXT + 'paylod = ["a"]', "paylod", "payload"),
        ("[indx]\n" + TEXT, "indx", "index"),
        (TEXT + "model = {precison = 'int8'}", "precison", "precision"),
        (TEXT + "chunk = {token = 5}", "token", "tokens"),
        (WINES + "text = [{colum = 'a'}]", "colum", "name"),
    ],
)
def test_an_unknown_key_is_refused_with_the_valid_ones(text: str, key: str, guess: str):
    error = refused(text)
    assert f"unknown key `{key}`" in error.fact
    assert guess in error.hint


def test_a_mistyped_key_gets_a_suggestion():
    assert "did you mean `payload`?" in refused(TEXT + 'paylod = ["a"]').hint


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("embedding_store = 1", "`embedding_store` is a whole number, expected true or false"),
        ("store = 3", "`store` is a whole number, expected a string"),
        ("model = 3", "`model` is a whole number, expected a name or a table"),
        ("model = {dimension = true}", "`dimension` is true or false, expected a whole number"),
        ("model = {timeout = 'x'}", "`timeout` is a string, expected a number"),
        ("chunk = 200", '`chunk` is neither "whole" nor a table'),
        ("chunk = {tokens = 0}", "`tokens` is 0, expected 1 or more"),
        ("chunk = {tokens = 5, overlap = 5}", "`overlap` 5 is not smaller than `tokens` 5"),
        ("chunk = {overlap = 5}", "`tokens` is missing"),
        ("payload = 'title'", "`payload` is not a list of column names"),
        ("payload = ['title', 1]", "`payload` is not a list of column names"),
        ("payload = ['a', 'b', 'a']", "payload names column 'a'"),
        ("payload = ['_key']", "payload column '_key' begins with '_'"),
        ("metric = 'cosin'", "`metric` is 'cosin'"),
        ("store = 'index'", "`store` is 'index'"),
        ("dimension = 3", "`dimension` works only with `vector`"),
        ("vector = 'e'", "needs exactly one of `text` and `vector`"),
        ("model = {provider = 'onx'}", "`provider` is 'onx'"),
        ("model = {provider = 'column'}", "`provider` is 'column'"),
        ("model = {precision = 'int4'}", "`precision` is 'int4'"),
        ("model = {provider = 'hashing', precision = 'int8'}", "`precision` 'int8' works only"),
        ("model = {provider = 'http', name = 'm', dimension = 3}", "needs `url`"),
        ("model = {provider = 'http', name = 'm', url = 'http://h/v1'}", "needs `dimension`"),
        ("model = {provider = 'http', url = 'http://h/v1', dimension = 3}", "needs `name`"),
        ("model = {retries = -1}", "`retries` is -1, expected 0 or more"),
        ("model = {timeout = 0}", "`timeout` is 0.0, expected more than 0"),
    ],
)
def test_an_invalid_value_is_refused_with_what_is_expected(line: str, fact: str):
    error = refused(TEXT + line)
    assert "index 'wines'" in error.fact
    assert fact in error.fact


@pytest.mark.parametrize(
    ("lines", "fact"),
    [
        ("", "needs exactly one of `text` and `vector`"),
        ("text = ' '", "`text` is blank"),
        ("text = '{title'", "`text` '{title'"),
        ("text = '{}'", "braces hold a column's name only"),
        ("text = '{points:.1f}'", "braces hold a column's name only"),
        ("text = 'no column'", "names no column"),
        ("text = ['title']", "`text` is a list, expected a template or a list of tables"),
        ("text = []", "`text` is a list, expected a template or a list of tables"),
        ("text = 3", "`text` is a whole number"),
        (
            "text = [{column = 'a'}, {name = 'a', template = '{b}'}]",
            "two text fields are called 'a'",
        ),
        ("text = [{name = 'a'}]", "`template` is missing"),
        ("vector = 'e'", "`vector` needs `dimension`"),
        ("vector = 'e'\ndimension = 0", "`dimension` is 0, expected 1 or more"),
        ("vector = 'e'\ndimension = 3\nchunk = {tokens = 5}", "`chunk` has no effect with"),
    ],
)
def test_an_invalid_text_or_vector_is_refused(lines: str, fact: str):
    assert fact in refused(WINES + lines).fact


@pytest.mark.parametrize("name", ["", "a b", "../a", "-a", "_a", "wein.1", "größe"])
def test_a_name_that_is_not_a_portable_file_name_is_refused(name: str):
    assert "`name`" in refused(TEXT.replace('"wines"', f'"{name}"')).fact


def test_two_indexes_of_one_name_are_refused():
    assert "two indexes are called 'wines'" in refused(TEXT + TEXT).fact


@pytest.mark.parametrize("key", ["name", "table"])
def test_a_missing_key_comes_with_an_example(key: str):
    lines = [line for line in TEXT.splitlines() if not line.startswith(key)]
    error = refused("\n".join(lines))
    assert f"`{key}` is missing" in error.fact
    assert f"{key} = " in error.hint


def test_an_index_written_as_a_single_table_gets_a_hint_about_double_brackets():
    assert "[[index]]" in refused(TEXT.replace("[[index]]", "[index]")).hint


def test_a_file_without_an_index_is_refused():
    assert "lakewake init TABLE" in refused("").hint


@pytest.mark.parametrize(
    "lines",
    [
        "model = {provider = 'http', api_key = 'sk-hidden'}",
        "model = {provider = 'http', key_env = 'sk-hidden'}",
        "[spark]\nhadoop.fs.s3a.secret.key = 'sk-hidden'",
    ],
)
def test_a_secret_is_refused_and_not_repeated(lines: str):
    assert "sk-hidden" not in str(refused(TEXT + lines))


def test_a_spark_option_with_a_list_is_refused():
    assert "`jars` is a list" in refused(TEXT + "[spark]\njars = ['a']").fact


def test_the_flag_wins_over_the_environment_for_the_file(tmp_path: Path):
    for name in ("flag", "env"):
        (tmp_path / f"{name}.toml").write_text(TEXT.replace("wines", name))
    env = {"LAKEWAKE_CONFIG": str(tmp_path / "env.toml")}
    assert load_config(env=env).indexes[0].name == "env"
    assert load_config(tmp_path / "flag.toml", env=env).indexes[0].name == "flag"


def test_without_flag_and_environment_the_file_is_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "lakewake.toml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    settings = load_config(env={})
    assert settings.path == tmp_path / "lakewake.toml"
    assert settings.indexes[0].table == str(tmp_path / "lake/wine_reviews")


def test_the_spark_master_comes_from_file_then_environment_then_flag(tmp_path: Path):
    file = tmp_path / "lakewake.toml"
    file.write_text(TEXT + '[spark]\nmaster = "local[1]"\nui.enabled = false\n')
    env = {"LAKEWAKE_SPARK_MASTER": "local[2]"}
    assert load_config(file, env={}).spark["spark.master"] == "local[1]"
    assert load_config(file, env=env).spark["spark.master"] == "local[2]"
    flagged = load_config(file, env=env, spark_master="local[3]")
    assert flagged.spark == {"spark.master": "local[3]", "spark.ui.enabled": "false"}


def test_a_missing_file_hints_at_init(tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "no.toml", env={})
    assert str(tmp_path / "no.toml") in caught.value.fact
    assert "lakewake init TABLE" in caught.value.hint


def test_a_folder_or_a_binary_file_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path, env={})
    (tmp_path / "bin.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "bin.toml", env={})


def test_a_byte_order_mark_before_the_configuration_is_ignored(tmp_path: Path):
    text = '[[index]]\nname = "a"\ntable = "t"\ntext = "{x}"\n'
    (tmp_path / "a.toml").write_text(text, encoding="utf-8-sig")
    assert [index.name for index in load_config(tmp_path / "a.toml", env={}).indexes] == ["a"]


def test_every_example_of_the_documentation_is_accepted():
    guide = ROOT / "docs" / "config.md"
    blocks = re.findall(r"```toml\n(.*?)```", guide.read_text(), re.DOTALL)
    assert len(blocks) == 14
    for block in blocks:
        if block.startswith(("[[index]]", "untested_schemes")):
            whole = block
        elif block.startswith(("[", "rerank", "where")):
            whole = TEXT + block
        else:
            whole = WINES + block
        assert parse(whole).indexes[0].name == "wines"


def test_the_documentation_names_every_key():
    guide = (ROOT / "docs" / "config.md").read_text()
    named = set(re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE))
    kinds = (INDEX_KEYS, MODEL_KINDS, RERANK_KINDS, EMBEDDING_STORE_KEYS, KINDS, SERVE_KEYS)
    assert named == set().union(*kinds)


@pytest.mark.parametrize(
    ("keep", "kept"), [("50", Keep(50)), ('"7d"', Keep(seconds=7 * 86_400)), ("1", Keep(1))]
)
def test_an_index_in_the_lake_keeps_commits_or_a_time(keep: str, kept: Keep) -> None:
    assert only(f'{TEXT}\nstore = "hudi://index"\nkeep = {keep}').keep == kept


@pytest.mark.parametrize("keep", ["0", "-1", '"soon"', "true"])
def test_another_keep_is_refused(keep: str) -> None:
    with pytest.raises(ConfigError, match="`keep` is"):
        only(f'{TEXT}\nstore = "hudi://index"\nkeep = {keep}')


def test_only_an_index_in_the_lake_has_a_keep() -> None:
    with pytest.raises(ConfigError, match="works only for an index in the lake"):
        only(f"{TEXT}\nkeep = 50")


@pytest.mark.parametrize("hot", ["auto", "off", "2GB", "512 MB"])
def test_the_memory_of_an_index_is_bounded(hot: str) -> None:
    assert only(f'{TEXT}\nhot = "{hot}"').hot == hot
    assert only(TEXT).hot == "auto"


@pytest.mark.parametrize("hot", ["on", "0MB", "2", "GB"])
def test_another_bound_of_memory_is_refused(hot: str) -> None:
    error = refused(f'{TEXT}\nhot = "{hot}"')
    assert "`hot` is" in error.fact
    assert "2GB" in error.hint


def test_an_index_of_vectors_may_fall_back_to_a_scan() -> None:
    vectors = f'{WINES}vector = "embedding"\ndimension = 3\n'
    assert only(f'{vectors}fallback = "scan"').fallback == "scan"
    assert only(vectors).fallback == ""
    assert "valid values are scan" in refused(f'{vectors}fallback = "index"').hint


def test_an_index_of_texts_cannot_fall_back_to_a_scan() -> None:
    assert "works only with `vector`" in refused(f'{TEXT}fallback = "scan"').fact
