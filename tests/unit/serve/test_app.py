"""Every path of the server, over real indexes."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakewake.serve.page import PageFile, read_page
from lakewake.source.memory import MemoryTable
from support.sampling import SCHEMA, rid, sample_recipe, values
from support.serving import URL, WINES, asking, served_index, wine_index

SEARCH = "/indexes/sample/search"
RECOMMEND = "/indexes/sample/recommend"


def hits(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [hit["key"] for hit in answer.json()["hits"]]


def test_a_search_by_text_returns_the_nearest_rows_and_the_instant() -> None:
    index, table = wine_index()
    with asking(index) as client:
        answer = client.post(SEARCH, json={"text": "smoky red with leather", "k": 2}).json()
    assert answer["index"] == "sample"
    assert answer["instant"] == table.look(None).newest
    assert len(answer["hits"]) == 2
    best = answer["hits"][0]
    assert (best["key"], best["partition"], best["payload"]) == ("smoky", "p", {"num": 30})
    assert best["score"] == pytest.approx(1.0)
    assert {"mode", "more"} <= set(answer)


def test_a_search_by_vector_embeds_nothing() -> None:
    index, _ = wine_index()
    vector = index.parts.embedder.embed(["sweet wine with honey"])[0].tolist()
    index.parts.embedder.received.clear()  # type: ignore[attr-defined]
    with asking(index) as client:
        assert hits(client.post(SEARCH, json={"vector": vector, "k": 1})) == ["sweet"]
    assert index.parts.embedder.received == []  # type: ignore[attr-defined]


def test_a_filter_leaves_rows_out() -> None:
    index, _ = wine_index()
    with asking(index) as client:
        found = client.post(SEARCH, json={"text": "wine", "where": "num < 25", "k": 9})
    assert sorted(hits(found)) == ["fresh", "sweet"]


def test_a_filter_can_be_json() -> None:
    index, _ = wine_index()
    with asking(index) as client:
        body = {"text": "wine", "where": {"num": {"<": 25}, "_key": "sweet"}, "k": 9}
        assert hits(client.post(SEARCH, json=body)) == ["sweet"]


def test_rows_like_a_row_leave_out_that_row() -> None:
    index, _ = wine_index()
    with asking(index) as client:
        body = {"like": {"key": "smoky", "partition": "p"}, "k": 9}
        assert sorted(hits(client.post(SEARCH, json=body))) == ["fresh", "sweet"]
        unknown = client.post(SEARCH, json={"like": {"key": "none"}})
    assert unknown.status_code == 400


def test_every_mode_and_page_of_a_search_is_passed_on() -> None:
    index, _ = wine_index()
    with asking(index) as client:
        words = client.post(SEARCH, json={"text": "honey", "mode": "keyword"}).json()
        both = client.post(SEARCH, json={"text": "honey", "mode": "hybrid", "k": 1}).json()
        rest = client.post(SEARCH, json={"text": "honey", "k": 1, "offset": 2}).json()
        best = client.post(SEARCH, json={"text": "sweet wine with honey", "min_score": 0.9}).json()
    assert [hit["key"] for hit in words["hits"]] == ["sweet"]
    assert words["hits"][0]["similarity"] is None
    assert (words["mode"], both["mode"]) == ("keyword", "hybrid")
    assert (both["more"], rest["more"]) == (True, False)
    assert len(rest["hits"]) == 1
    assert [hit["key"] for hit in best["hits"]] == ["sweet"]
    start, end = best["hits"][0]["highlight"]
    assert best["hits"][0]["text"][start:end] == "sweet wine with honey"


def test_a_commit_is_seen_by_the_next_search_without_a_restart() -> None:
    index, table = wine_index()
    with asking(index) as client:
        before = client.post(SEARCH, json={"text": "dry rosé", "k": 1}).json()
        table.upsert({rid("rose"): values("dry rosé", 9)})
        table.delete([rid("smoky")])
        index.sync()
        after = client.post(SEARCH, json={"text": "dry rosé", "k": 9}).json()
    assert before["instant"] < after["instant"] == table.look(None).newest
    assert after["hits"][0]["key"] == "rose"
    assert "smoky" not in [hit["key"] for hit in after["hits"]]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"text": "x", "vector": [1.0]}, 400),
        ({"text": "  "}, 400),
        ({"text": "x", "where": "num <"}, 400),
        ({"text": "x", "where": "contry = 'x'"}, 400),
        ({"text": "x", "where": "num IN (SELECT 1)"}, 400),
        ({"vector": [1.0, 2.0]}, 400),
        ({"text": "\ud800"}, 400),
        ({"text": "x", "k": 0}, 422),
        ({"text": "x", "k": "5"}, 422),
        ({"text": "x", "k": 5.5}, 422),
        ({"text": "x", "mode": "magic"}, 422),
        ({"text": "x", "exact": "yes"}, 422),
        ({"text": "x", "wher": "num < 3"}, 422),
        ({"text": 7}, 422),
        ({"vector": ["x"]}, 422),
        ({"like": {"partition": "p"}}, 422),
        ([], 422),
        ("text", 422),
        (None, 422),
    ],
)
def test_an_invalid_request_is_refused_with_a_fact_and_a_hint(body: object, status: int) -> None:
    index, _ = wine_index()
    with asking(index) as client:
        answer = client.post(
            SEARCH, content=json.dumps(body), headers={"Content-Type": "application/json"}
        )
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error", "hint"}
    assert answer.json()["error"]


def test_a_body_without_a_json_content_type_is_refused_with_a_hint() -> None:
    index, _ = wine_index()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with asking(index) as client:
        answer = client.post(SEARCH, content=b'{"text": "x"}', headers=form)
    assert answer.status_code == 422
    assert "Content-Type: application/json" in answer.json()["error"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"k": ' + b"9" * 5000 + b"}", b'{"vector": [NaN]}'],
)
def test_a_body_that_is_not_json_is_refused(content: bytes) -> None:
    index, _ = wine_index()
    with asking(index) as client:
        answer = client.post(SEARCH, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]


def test_half_a_surrogate_pair_is_refused_as_text_not_as_json() -> None:
    index, _ = wine_index()
    with asking(index) as client:
        answer = client.post(
            SEARCH,
            content=b'{"text": "red \\ud83c wine"}',
            headers={"Content-Type": "application/json"},
        )
    assert answer.status_code == 400
    assert "not valid Unicode" in answer.json()["error"]


def test_a_form_of_another_site_is_refused() -> None:
    index, _ = wine_index()
    with asking(index) as client:
        answer = client.post(
            SEARCH, content=b'{"text": "x"}', headers={"Content-Type": "text/plain"}
        )
    assert answer.status_code == 422


@pytest.mark.parametrize("name", ["other", "..%2Fsample", "sample%00", "SAMPLE", "%F0%9F%8D%B7"])
def test_index_names_outside_the_configuration_are_not_found(name: str) -> None:
    index, _ = wine_index()
    with asking(index) as client:
        answers = [
            client.post(f"/indexes/{name}/search", json={"text": "x"}),
            *(client.get(f"/indexes/{name}/{what}") for what in ("status", "history", "facets")),
        ]
    for answer in answers:
        assert answer.status_code == 404
        assert set(answer.json()) == {"error", "hint"}


def test_a_missing_index_is_unavailable_and_names_the_command() -> None:
    index = served_index(MemoryTable(sample_recipe(), SCHEMA))
    with asking(index) as client:
        answer = client.post(SEARCH, json={"text": "x"})
        listed = client.get("/indexes").json()["indexes"]
        ready = client.get("/ready")
    assert answer.status_code == 503
    assert "lakewake sync sample" in answer.json()["hint"]
    assert (listed[0]["instant"], listed[0]["rows"], listed[0]["fresh"]) == ("", 0, False)
    assert ready.status_code == 503
    assert ready.json()["indexes"] == [
        {"name": "sample", "fresh": False, "why": "it is not built yet"}
    ]


def test_the_list_shows_the_size_and_the_instant_of_each_index() -> None:
    first, table = wine_index()
    second, _ = wine_index(name="other")
    with asking(first, second) as client:
        listed = client.get("/indexes").json()
    assert [i["name"] for i in listed["indexes"]] == ["sample", "other"]
    assert listed["indexes"][0] == {
        "name": "sample",
        "instant": table.look(None).newest,
        "rows": 3,
        "chunks": 3,
        "payload": ["num"],
        "modes": ["vector", "keyword", "hybrid"],
        "fresh": True,
        "has_language_model": False,
        "has_reranking_model": False,
    }
    assert listed["watch"] is None


def test_status_returns_the_same_object_as_the_command() -> None:
    index, _ = wine_index()
    with asking(index) as client:
        response = client.get("/indexes/sample/status").json()
    assert {**index.status().as_dict(), "watch": None} == response


@pytest.mark.parametrize("what", ["history", "facets", "commits"])
def test_lists_name_the_instant_they_describe(what: str) -> None:
    index, table = wine_index()
    with asking(index) as client:
        response = client.get(f"/indexes/sample/{what}").json()
    assert (response["index"], response["instant"]) == ("sample", table.look(None).newest)
    assert isinstance(response[what], list)


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1001"])
def test_a_limit_out_of_range_is_refused(limit: str) -> None:
    index, _ = wine_index()
    with asking(index) as client:
        assert client.get(f"/indexes/sample/history?limit={limit}").status_code == 422


def test_ready_is_judged_by_the_freshness_limit() -> None:
    strict, table = wine_index(freshness=30.0)
    easy, other = wine_index(name="easy")
    with asking(strict, easy) as client:
        assert client.get("/ready").status_code == 200
        for t in (table, other):
            t.upsert({rid("new"): values("new")})
        late = client.get("/ready")
        assert late.status_code == 503
        judged = {i["name"]: i for i in late.json()["indexes"]}
        assert not judged["sample"]["fresh"]
        assert "its limit is 30 s" in judged["sample"]["why"]
        assert judged["easy"]["fresh"]
        strict.sync()
        assert client.get("/ready").json()["ready"] is True


def test_health_reads_neither_table_nor_index() -> None:
    with asking() as client:
        assert client.get("/health").json() == {"ok": True}


def test_a_recommendation_is_returned_whole_or_streamed() -> None:
    index, _ = wine_index()
    with asking(index) as client:
        whole = client.post("/indexes/sample/recommend", json={"query": "smoky red", "k": 2})
        streamed = client.post(
            "/indexes/sample/recommend", json={"query": "smoky red", "k": 2, "stream": True}
        )
    assert whole.status_code == 200
    assert whole.json()["query"] == "smoky red"
    assert len(whole.json()["hits"]) == 2
    assert streamed.headers["content-type"].startswith("text/event-stream")
    events = [block.split("\n") for block in streamed.text.strip().split("\n\n")]
    assert {e[0] for e in events[:-1]} == {"event: piece"}
    assert events[-1][0] == "event: answer"


def test_an_invalid_recommendation_request_is_refused_before_it_streams() -> None:
    index, _ = wine_index()
    with asking(index) as client:
        body = {"query": "x", "where": "num <", "stream": True}
        answer = client.post("/indexes/sample/recommend", json=body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"


def test_every_answer_has_the_security_headers() -> None:
    index, _ = wine_index()
    with asking(index) as client:
        answers = [
            client.get("/health"),
            client.get("/nowhere"),
            client.post(SEARCH, json={"text": "x"}),
            client.post(SEARCH, json={"k": 0}),
            client.get("/health", headers={"Host": "evil.example"}),
        ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers


def test_an_unknown_path_or_method_has_the_usual_error_shape() -> None:
    with asking() as client:
        lost, wrong = client.get("/nowhere"), client.delete("/indexes")
    assert (lost.status_code, wrong.status_code) == (404, 405)
    assert set(lost.json()) == set(wrong.json()) == {"error", "hint"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8377", 200),
        ("localhost", 200),
        ("LOCALHOST:9", 200),
        ("[::1]:8377", 200),
        ("evil.example:8377", 400),
        ("127.0.0.1.evil.example", 400),
        ("", 400),
    ],
)
def test_on_loopback_only_loopback_host_names_are_accepted(host: str, status: int) -> None:
    with asking() as client:
        assert client.get("/health", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("search.example:8377", 200),
        ("SEARCH.example", 200),
        ("10.1.2.3:8377", 200),
        ("[fe80::1]:8377", 200),
        ("localhost", 200),
        ("evil.example", 400),
        ("10.1.2.3.evil.example", 400),
        ("search.example.evil.example", 400),
        ("", 400),
    ],
)
def test_an_open_server_accepts_only_ip_addresses_and_allowed_hosts(host: str, status: int) -> None:
    with asking(host="0.0.0.0", allowed_hosts=("search.example",)) as client:
        assert client.get("/health", headers={"Host": host}).status_code == status


def test_with_keys_any_host_is_accepted_unless_hosts_are_listed(tmp_path: Path) -> None:
    from lakewake.serve.keys import KeyRing, add_key

    add_key(tmp_path / "keys.json", "one", "read")
    ring = KeyRing(tmp_path / "keys.json")
    with asking(host="0.0.0.0", keys=ring) as client:
        assert client.get("/health", headers={"Host": "search.example"}).status_code == 200
    with asking(host="0.0.0.0", keys=ring, allowed_hosts=("other.example",)) as client:
        assert client.get("/health", headers={"Host": "search.example"}).status_code == 400
        assert client.get("/health", headers={"Host": "other.example"}).status_code == 200


def test_on_loopback_allowed_hosts_are_accepted_too() -> None:
    with asking(allowed_hosts=("search.example",)) as client:
        assert client.get("/health", headers={"Host": "search.example"}).status_code == 200
        assert client.get("/health", headers={"Host": "10.1.2.3"}).status_code == 400


@pytest.mark.parametrize(
    ("origin", "status"),
    [(URL, 200), ("http://evil.example", 403), ("null", 403), ("http://[", 403)],
)
def test_requests_of_other_sites_are_refused(origin: str, status: int) -> None:
    with asking() as client:
        assert client.get("/health", headers={"Origin": origin}).status_code == status


def test_a_payload_value_that_json_lacks_is_still_returned() -> None:
    import pyarrow as pa

    schema = pa.schema([("txt", pa.string()), ("num", pa.float64())])
    table = MemoryTable(sample_recipe(), schema)
    table.upsert({rid("nan"): {"txt": "not a number", "num": float("nan")}})
    index = served_index(table)
    index.sync()
    with asking(index) as client:
        answer = client.post(SEARCH, json={"text": "not a number"})
    assert answer.json()["hits"][0]["payload"] == {"num": None}


def test_an_unexpected_error_is_a_plain_500_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def embed(self, texts: object) -> None:
            raise ZeroDivisionError("secret detail")

        identity = sample_recipe().model

    from dataclasses import replace

    index, _ = wine_index()
    index.__dict__["parts"] = replace(index.parts, embedder=Broken())
    with asking(index) as client:
        answer = client.post(SEARCH, json={"text": "x"})
    assert answer.status_code == 500
    assert "secret detail" not in answer.text
    assert "secret detail" in caplog.text


def test_passwords_in_addresses_are_not_shown() -> None:
    from dataclasses import replace

    index, _ = wine_index()
    index.settings = replace(index.settings, store="qdrant://me:s3cr3t@host:6333/c")
    with asking(index) as client:
        response = client.get("/indexes/sample/status")
    assert response.json()["store"] == "qdrant://***@host:6333/c"
    assert "s3cr3t" not in response.text


def test_the_page_and_its_files_come_with_their_types_and_tags(tmp_path: Path) -> None:
    for name in ("index.html", "page.css", "page.js", "icon.svg", "notes.txt"):
        (tmp_path / name).write_text(f"<{name}>")
    with asking(app={"page": read_page(tmp_path)}) as client:
        page, style = client.get("/"), client.get("/page/page.css")
        script, icon = client.get("/page/page.js"), client.get("/page/icon.svg")
        known = client.get("/", headers={"If-None-Match": page.headers["etag"]})
        assert client.get("/page/notes.txt").status_code == 404
        assert client.get("/page/..%2fpage.py").status_code == 404
        assert client.head("/").status_code == 200
    assert page.text == "<index.html>"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    assert style.headers["content-type"].startswith("text/css")
    assert script.headers["content-type"].startswith("text/javascript")
    assert icon.headers["content-type"] == "image/svg+xml"
    assert (known.status_code, known.content) == (304, b"")


def test_a_changed_page_has_another_tag() -> None:
    assert PageFile(b"a", "text/css").tag != PageFile(b"b", "text/css").tag


def test_a_read_is_repeated_if_the_index_is_replaced_meanwhile() -> None:
    from lakewake.errors import StoreError
    from lakewake.store.memory import MemoryStore

    class Replaced(MemoryStore):
        """Fail once, like a store whose generation was removed."""

        failures = 1

        def open(self) -> Any:
            if self.failures:
                self.failures -= 1
                raise StoreError("a file is gone")
            return super().open()

    store = Replaced()
    store.failures = 0
    table = MemoryTable(sample_recipe(), SCHEMA)
    table.upsert(WINES)
    index = served_index(table, store)
    index.sync()
    store.failures = 1
    with asking(index) as client:
        assert hits(client.post(SEARCH, json={"text": "smoky red with leather", "k": 1})) == [
            "smoky"
        ]
        store.failures = 1
        streamed = client.post(RECOMMEND, json={"query": "smoky red", "stream": True})
        assert streamed.status_code == 200
        assert "event: answer" in streamed.text
        store.failures = 1
        assert client.get("/indexes/sample/status").status_code == 200
        store.failures = 1
        assert client.get("/ready").json()["ready"]
        store.failures = 100
        assert client.post(SEARCH, json={"text": "x"}).status_code == 503


def test_an_index_that_cannot_be_counted_does_not_hide_the_others() -> None:
    from lakewake.errors import StoreError
    from lakewake.store.memory import MemoryReader, MemoryStore

    class Damaged(MemoryReader):
        def counts(self) -> tuple[int, int]:
            raise StoreError("a fragment is damaged")

    class Spoilt(MemoryStore):
        def open(self) -> Any:
            found = super().open()
            return found and Damaged(**vars(found))

    sound, _ = wine_index()
    spoilt, _ = wine_index(store=Spoilt(), name="spoilt")
    with asking(sound, spoilt) as client:
        listed = {index["name"]: index for index in client.get("/indexes").json()["indexes"]}
    assert (listed["sample"]["rows"], listed["sample"]["fresh"]) == (3, True)
    assert (listed["spoilt"]["rows"], listed["spoilt"]["fresh"]) == (0, False)


def test_addresses_in_the_history_are_shown_without_passwords() -> None:
    from lakewake.model.history import SyncRecord

    index, _ = wine_index()
    error = "http://bob:geh'eim@x@host/v1 did not answer"
    record = SyncRecord(datetime.now(UTC), "sample", "failed", error=error)
    index._log.append(record)
    with asking(index) as client:
        answers = [client.get(f"/indexes/sample/{path}").text for path in ("status", "history")]
    for answer in answers:
        assert "did not answer" in answer
        assert "geh" not in answer
        assert "eim" not in answer


def test_concurrent_requests_count_facets_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from lakewake.search import facets

    counted, begun, go = [], threading.Event(), threading.Event()

    def count_slowly(reader: Any) -> Any:
        counted.append(reader)
        begun.set()
        assert go.wait(30)
        return ()

    monkeypatch.setattr(facets, "compute_facets", count_slowly)
    index, _ = wine_index()
    with asking(index) as client, ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(client.get, "/indexes/sample/facets") for _ in range(2)]
        assert begun.wait(30)
        # However long that takes, /ready is answered.
        assert client.get("/ready").status_code == 200
        go.set()
        assert [answer.result().status_code for answer in asked] == [200, 200]
    assert len(counted) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"text": "smoky red", "k": 2},
        {"text": "wine", "where": {"num": {"<": 25}}, "mode": "hybrid"},
        {"text": "wine", "where": "num <"},
        {"text": "wine", "k": 101},
        {"text": " "},
        {"vector": [1.0]},
        {"text": "wine", "wrong": 1},
        {"text": 5},
        {},
        [],
        "wine",
        None,
    ],
)
@pytest.mark.parametrize("index", ["sample", "none", "a%20b"])
def test_the_short_way_of_a_search_answers_as_the_documented_one(body: Any, index: str) -> None:
    content = json.dumps(body)
    kinds = ("application/json", "Application/JSON; charset=utf-8", "application/other+json")
    path = f"/indexes/{index}/search"
    with asking(wine_index()[0]) as client:
        # FastAPI takes the last of these for JSON too, and the short way does not.
        short, also, long = (
            client.post(path, content=content, headers={"Content-Type": kind}) for kind in kinds
        )
    for answer in (short, also):
        assert (answer.status_code, answer.json()) == (long.status_code, long.json())
        assert answer.headers == long.headers


@pytest.mark.parametrize("content", [b"", b"{", b'{"text": "wine"} {}', b'{"text": "\\ud800"}'])
def test_a_body_that_is_not_json_is_refused_as_before(content: bytes) -> None:
    kinds = ("application/json", "application/other+json")
    with asking(wine_index()[0]) as client:
        short, long = (
            client.post(SEARCH, content=content, headers={"Content-Type": kind}) for kind in kinds
        )
    assert (short.status_code, short.content) == (long.status_code, long.content)
    assert 400 <= short.status_code < 500


def test_a_search_that_is_not_called_json_is_refused() -> None:
    with asking(wine_index()[0]) as client:
        answer = client.post(
            SEARCH, content=b'{"text": "wine"}', headers={"Content-Type": "text/plain"}
        )
    assert answer.status_code == 422
