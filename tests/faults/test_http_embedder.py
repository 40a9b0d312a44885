"""An embedding service that misbehaves: a real HTTP server on this machine."""

from __future__ import annotations

import gzip
import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest

from lakewake.errors import EmbedError, TextRefused
from lakewake.net.deadline import at_most
from support.embedding_service import (
    BAD,
    Service,
    answer,
    backwards,
    breaks_off,
    drips,
    drips_headers,
    fine,
    hangs_up,
    never_ends,
    refuses_bad,
    running,
    says,
    stalls,
    status,
    vector,
    zipped,
)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.delenv("SERVICE_KEY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running(Service()) as service:
        yield service


def expect(texts: list[str]) -> list[list[float]]:
    return [vector(text) for text in texts]


def test_texts_are_sent_in_batches_and_come_back_in_order(service):
    service.script = [fine]
    texts = [f"text {n}" * n for n in range(7)]
    assert service.embedder(batch=3).embed(texts).tolist() == expect(texts)
    assert service.requests == [texts[:3], texts[3:6], texts[6:]]
    assert set(service.models) == {"tiny"}


def test_a_batch_is_64_texts_by_default(service):
    service.script = [fine]
    service.embedder().embed(["x"] * 65)
    assert [len(texts) for texts in service.requests] == [64, 1]


def test_an_answer_out_of_order_is_put_in_order(service):
    service.script = [backwards]
    assert service.embedder().embed(["a", "bb", "ccc"]).tolist() == expect(["a", "bb", "ccc"])


def test_texts_reach_the_service_unchanged(service):
    service.script = [fine]
    texts = ["quo\"te'", "new\nline", "nul \x00", "emoji 🍷", ""]
    service.embedder().embed(texts)
    assert service.requests == [texts]


def test_the_key_is_sent_as_a_bearer_token(service, monkeypatch):
    monkeypatch.setenv("SERVICE_KEY", " s3cret \n")
    service.script = [fine]
    service.embedder().embed(["a"])
    assert service.keys == ["Bearer s3cret"]


def test_a_service_on_this_machine_needs_no_key(service):
    service.script = [fine]
    service.embedder().embed(["a"])
    assert service.keys == [None]


def test_an_unreachable_service_is_named_after_the_last_try(service):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        service.port = unused.getsockname()[1]
        embedder = service.embedder(retries=2)
        with pytest.raises(EmbedError, match=f"{service.port}.* 3 tries"):
            embedder.embed(["a"])
    assert len(service.waits) == 2


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_key_is_not_tried_again_and_its_variable_is_named(service, code):
    service.script = [status(code)]
    with pytest.raises(EmbedError, match=str(code)) as caught:
        service.embedder().embed(["a"])
    assert "SERVICE_KEY" in caught.value.hint
    assert len(service.requests) == 1


def test_a_key_that_the_service_repeats_is_not_shown(service, monkeypatch):
    monkeypatch.setenv("SERVICE_KEY", "s3cret")
    service.script = [status(401, "wrong key: s3cret")]
    with pytest.raises(EmbedError) as caught:
        service.embedder().embed(["a"])
    assert "wrong key: ***" in caught.value.fact
    assert "s3cret" not in str(caught.value)


def test_an_unknown_model_or_address_is_not_tried_again(service):
    service.script = [status(404, "no such model")]
    with pytest.raises(EmbedError, match="no such model"):
        service.embedder().embed(["a"])
    assert len(service.requests) == 1


def test_a_busy_service_is_waited_for_as_long_as_it_asks(service):
    service.script = [status(429, Retry_After="7"), fine]
    assert service.embedder().embed(["a"]).tolist() == expect(["a"])
    assert service.waits == [7]
    assert len(service.requests) == 2


def test_a_service_that_asks_for_an_hour_is_not_waited_for(service):
    service.script = [status(429, Retry_After="3600"), fine]
    with pytest.raises(EmbedError, match="Retry-After: 3600"):
        service.embedder().embed(["a"])
    assert service.waits == []


def test_a_failing_service_is_tried_again(service):
    service.script = [status(500), status(503), fine]
    assert service.embedder().embed(["a"]).tolist() == expect(["a"])
    assert len(service.requests) == 3
    assert len(service.waits) == 2


def test_only_the_batch_that_failed_is_sent_again(service):
    service.script = [fine, status(500), fine]
    texts = ["a", "b", "c"]
    assert service.embedder(batch=1).embed(texts).tolist() == expect(texts)
    assert service.requests == [["a"], ["b"], ["b"], ["c"]]


def test_a_service_that_keeps_failing_is_given_up_after_its_retries(service):
    service.script = [status(500, "out of memory")]
    with pytest.raises(EmbedError, match=r"500.*out of memory"):
        service.embedder(retries=3).embed(["a"])
    assert len(service.requests) == 4
    assert len(service.waits) == 3


@pytest.mark.parametrize("fault", [hangs_up, breaks_off])
def test_a_connection_that_is_closed_is_opened_again(service, fault):
    service.script = [fault, fine]
    assert service.embedder().embed(["a"]).tolist() == expect(["a"])
    assert len(service.requests) == 2


def test_a_service_that_stalls_is_given_up_after_the_timeout(service):
    service.script = [stalls]
    with pytest.raises(EmbedError, match="2 tries: timed out"):
        service.embedder(timeout=0.05, retries=1).embed(["a"])
    assert len(service.requests) == 2


def test_a_wrong_dimension_names_both(service):
    service.script = [says({"data": [{"index": 0, "embedding": [1, 2]}]})]
    with pytest.raises(EmbedError, match="2 numbers, expected 3"):
        service.embedder().embed(["a"])
    assert len(service.requests) == 1


def test_a_short_answer_names_both_counts(service):
    service.script = [says(answer(["a"]))]
    with pytest.raises(EmbedError, match="1 vectors for 2 texts"):
        service.embedder().embed(["a", "b"])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "null", '"1"'])
def test_a_vector_that_is_not_all_finite_numbers_is_refused(service, number):
    body = f'{{"data": [{{"index": 0, "embedding": [1, 2, {number}]}}]}}'
    service.script = [status(200, body)]
    with pytest.raises(EmbedError, match="not all"):
        service.embedder().embed(["a"])


@pytest.mark.parametrize("body", ["{broken", "", "<html>hello</html>"])
def test_an_answer_that_is_not_json_is_refused(service, body):
    service.script = [status(200, body)]
    with pytest.raises(EmbedError, match="not JSON"):
        service.embedder().embed(["a"])


def test_refused_texts_are_found_and_do_not_hide_the_others(service):
    service.script = [refuses_bad]
    texts = ["a", "b", f"c {BAD}", "d", "e", "f", "g", f"h {BAD}", "i"]
    with pytest.raises(TextRefused) as caught:
        service.embedder(batch=4).embed(texts)
    assert caught.value.positions == (2, 7)
    assert "I do not read that" in caught.value.reasons[7]
    others = [n for n in range(len(texts)) if n not in (2, 7)]
    assert caught.value.vectors[others].tolist() == expect([texts[n] for n in others])
    assert np.isnan(caught.value.vectors[[2, 7]]).all()


def test_no_text_is_embedded_twice_to_find_the_refused_ones(service):
    service.script = [refuses_bad]
    texts = [f"{n}" for n in range(16)]
    texts[5] = BAD
    with pytest.raises(TextRefused):
        service.embedder().embed(texts)
    embedded = [text for sent in service.requests if BAD not in sent for text in sent]
    assert sorted(embedded) == sorted(text for text in texts if text != BAD)
    assert len(service.requests) == 9


def test_a_service_that_refuses_everything_does_not_receive_every_text_alone(service):
    service.script = [status(400, "no such parameter")]
    with pytest.raises(EmbedError, match="no such parameter") as caught:
        service.embedder().embed([f"{n}" for n in range(640)])
    assert not isinstance(caught.value, TextRefused)
    assert len(service.requests) < 40


def test_a_batch_that_is_too_large_is_sent_in_smaller_ones(service):
    service.script = [status(413), fine]
    texts = ["a", "b", "c", "d"]
    assert service.embedder().embed(texts).tolist() == expect(texts)
    assert service.requests == [texts, texts[:2], texts[2:]]


@pytest.mark.parametrize("answer", [drips, drips_headers])
def test_a_service_that_answers_byte_by_byte_times_out(service, answer):
    service.script = [answer]
    began = time.monotonic()
    with pytest.raises(EmbedError, match="1 try: timed out"):
        service.embedder(timeout=0.3, retries=0).embed(["a"])
    assert time.monotonic() - began < 15
    assert service.hung_up.wait(10)


def test_an_endless_answer_is_cut_off(service):
    service.script = [never_ends]
    with pytest.raises(EmbedError, match=r"answered with more than 1,001,192 bytes"):
        service.embedder(retries=0).embed(["a"])
    assert service.hung_up.wait(10)


def test_compressed_answers_are_neither_asked_for_nor_read(service):
    service.script = [zipped]
    with pytest.raises(EmbedError, match="an encoding that was not asked for"):
        service.embedder().embed(["a"])
    assert service.encodings == ["identity"]


def test_a_compressed_refusal_is_reported_by_its_status(service):
    text = gzip.compress(b"x" * 10_000_000)
    service.script = [lambda handler, _: handler.reply(403, text, Content_Encoding="gzip")]
    with pytest.raises(EmbedError) as caught:
        service.embedder().embed(["a"])
    assert caught.value.fact.endswith("answered 403 Forbidden")


def test_json_that_is_nested_too_deeply_is_refused(service):
    service.script = [status(200, "[" * 100_000)]
    with pytest.raises(EmbedError, match="not JSON"):
        service.embedder().embed(["a"])


@pytest.mark.parametrize("asked", ["300", "20"])
def test_a_query_does_not_wait_as_long_as_a_busy_service_asks(service, asked):
    service.script = [status(429, Retry_After=asked)]
    with at_most(30), pytest.raises(EmbedError, match=f"429.*Retry-After: {asked}"):
        service.embedder().embed(["a"])
    assert service.waits == []


def test_a_query_waits_a_moment_for_a_failing_service(service):
    service.script = [status(503), fine]
    with at_most(30):
        assert service.embedder().embed(["a"]).tolist() == expect(["a"])
    assert len(service.waits) == 1
    assert service.waits[0] <= 2


def test_a_query_waits_no_longer_than_its_time_limit(service):
    service.script = [stalls]
    began = time.monotonic()
    with at_most(0.3), pytest.raises(EmbedError, match="timed out"):
        service.embedder(timeout=60).embed(["a"])
    assert time.monotonic() - began < 15
    assert len(service.requests) == 1
