"""How an answer of an embedding service is read, and when a request is retried."""

from __future__ import annotations

import datetime

import httpx2
import numpy as np
import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed.http import HttpEmbedder, read_vectors
from lakewake.errors import ConfigError, SetupError
from lakewake.net.service import read_retry_after, wait_to_retry

NOW = datetime.datetime(2025, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)
LOCAL = "http://127.0.0.1:9/v1"


def make(**settings: object) -> HttpEmbedder:
    return HttpEmbedder(
        ModelSettings(provider="http", **{"dimension": 2, "url": LOCAL, **settings})
    )


def item(index: object, embedding: object) -> dict[str, object]:
    return {"index": index, "embedding": embedding}


def test_vectors_are_put_in_order_by_their_index():
    body = {"data": [item(1, [3, 4]), item(0, [1, 2.5])]}
    assert read_vectors(body, 2, 2).tolist() == [[1, 2.5], [3, 4]]


def test_vectors_without_an_index_keep_their_order():
    body = {"data": [{"embedding": [1, 2]}, {"embedding": [3, 4]}]}
    assert read_vectors(body, 2, 2).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "no list"),
        ({}, "no list"),
        ({"data": {}}, "no list"),
        ({"data": [1, 2]}, "no list"),
        ({"data": [item(0, [1, 2])]}, "1 vectors for 2 texts"),
        ({"data": [item(0, [1, 2])] * 3}, "3 vectors for 2 texts"),
        ({"data": [item(0, [1, 2]), item(0, [1, 2])]}, "did not number"),
        ({"data": [item(1, [1, 2]), item(2, [1, 2])]}, "did not number"),
        ({"data": [item(0, [1, 2]), item("1", [1, 2])]}, "did not number"),
        ({"data": [item(0, [1, 2]), item(1, [1, 2, 3])]}, "3 numbers, expected 2"),
        ({"data": [item(0, [1, 2]), item(1, None)]}, "NoneType"),
        ({"data": [item(0, [1, 2]), item(1, "AACAPw==")]}, "str"),
        ({"data": [item(0, [1, 2]), item(1, ["1", "2"])]}, "not all numbers"),
        ({"data": [item(0, [1, 2]), item(1, [True, 2])]}, "not all numbers"),
        ({"data": [item(0, [1, 2]), item(1, [None, 2])]}, "not all numbers"),
        ({"data": [item(0, [1, 2]), item(1, [float("nan"), 2])]}, "not all finite"),
        ({"data": [item(0, [1, 2]), item(1, [1e39, 2])]}, "not all finite"),
    ],
)
def test_an_answer_that_is_not_one_vector_for_each_text_is_refused(body, said):
    with pytest.raises(ValueError, match=said):
        read_vectors(body, 2, 2)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("0.5", 0.5),
        ("-3", 0),
        ("Sat, 01 Mar 2025 12:00:20 GMT", 20),
        ("Sat, 01 Mar 2025 11:00:00 GMT", 0),
        ("Sat, 01 Mar 2025 12:00:20 -0000", 20),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header, seconds):
    assert read_retry_after(header, NOW) == seconds


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_a_transient_failure_is_retried_after_a_growing_wait(status):
    waits = [wait_to_retry(httpx2.Response(status), attempt, NOW) for attempt in (0, 1, 2, 50)]
    limits = [(0.25, 0.5), (0.5, 1), (1, 2), (15, 30)]
    assert all(low <= w <= high for w, (low, high) in zip(waits, limits, strict=True))


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 413, 422])
def test_a_permanent_failure_is_not_retried(status):
    assert wait_to_retry(httpx2.Response(status), 0, NOW) is None


def test_the_retry_waits_as_long_as_the_service_asks():
    answer = httpx2.Response(503, headers={"Retry-After": "12"})
    assert wait_to_retry(answer, 0, NOW) == 12


def test_a_requested_wait_of_an_hour_is_an_error():
    answer = httpx2.Response(429, headers={"Retry-After": "3600"})
    assert wait_to_retry(answer, 0, NOW) is None


def test_a_connection_failure_is_retried():
    assert wait_to_retry(httpx2.ReadTimeout("late"), 0, NOW) is not None


def test_an_invalid_request_is_not_retried():
    assert wait_to_retry(httpx2.LocalProtocolError("header"), 0, NOW) is None


def test_the_identity_is_the_model_name_of_the_service():
    identity = make(name="text-embedding-3-small", dimension=1536, max_tokens=8191).identity
    assert (identity.provider, identity.name) == ("http", "text-embedding-3-small")
    assert (identity.dimension, identity.max_tokens, identity.weights) == (1536, 8191, "")


def test_no_texts_make_no_rows_and_no_request():
    vectors = make().embed([])
    assert vectors.shape == (0, 2)
    assert vectors.dtype == np.float32


def test_a_dimension_is_required():
    with pytest.raises(ConfigError) as caught:
        make(dimension=0)
    assert "dimension" in caught.value.hint


@pytest.mark.parametrize("url", ["", "localhost:80/v1", "ftp://host/v1", "http://", "http://[::"])
def test_an_invalid_address_is_refused(url):
    with pytest.raises(ConfigError) as caught:
        make(url=url)
    assert "http://localhost" in caught.value.hint


def test_a_remote_service_needs_a_key(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    embedder = make(url="https://embeddings.invalid/v1", key_env="SOME_KEY")
    with pytest.raises(SetupError, match="SOME_KEY"):
        embedder.embed(["text"])


def test_a_key_that_does_not_fit_a_header_is_not_printed(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret\nvalue")
    with pytest.raises(SetupError, match="SOME_KEY") as caught:
        make(key_env="SOME_KEY").embed(["text"])
    assert "secret" not in str(caught.value)


def test_the_tokenizer_is_the_file_that_the_settings_name(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": "ü"}', encoding="utf-8")
    assert make().tokenizer is None
    assert make(tokenizer=str(tmp_path / "tokenizer.json")).tokenizer == '{"model": "ü"}'


def test_a_missing_tokenizer_is_named(tmp_path):
    with pytest.raises(ConfigError, match="absent"):
        _ = make(tokenizer=str(tmp_path / "absent")).tokenizer
