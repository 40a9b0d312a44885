"""What the server tells operators, and what it asks of the syncing process for them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from starlette.testclient import TestClient

from lakewake.api import Index
from lakewake.cli.sync import JobDesk, attended
from lakewake.embed.hashing import HashingEmbedder
from lakewake.errors import TextRefused
from lakewake.history.jobs import Jobs, MemoryFiles
from lakewake.serve.callers import CALLER, Caller, Views
from lakewake.serve.keys import KeyRing, add_key
from lakewake.serve.refusals import Refused
from lakewake.source.memory import MemoryTable
from support.sampling import HASHING, SCHEMA, rid, sample_recipe, values
from support.serving import asking, served_index

ROWS = {rid("good"): values("smoky red", 1), rid("bad"): values("odd text", 2)}
WHERES = {"ops": ("admin", ""), "reader": ("read", ""), "few": ("read", "num = 1")}
PATHS = ("jobs", "quarantine")


class Choosy(HashingEmbedder):
    """Refuses texts with the word `odd`, until the word is changed."""

    word = "odd"

    def embed(self, texts: Any) -> np.ndarray:
        reasons = {n: "too <b>odd</b>" for n, t in enumerate(texts) if self.word in t}
        vectors = super().embed(texts)
        if reasons:
            raise TextRefused("some are refused", reasons, vectors)
        return vectors


class Desk:
    """An index with a row in quarantine, a server with three keys, and a watch beside it."""

    def __init__(self, folder: Path) -> None:
        table = MemoryTable(sample_recipe(), SCHEMA)
        table.upsert(ROWS)
        self.embedder = Choosy(HASHING)
        self.index: Index = served_index(
            table, parts=lambda parts: replace(parts, embedder=self.embedder)
        )
        self.index.__dict__["_jobs"] = Jobs("sample", MemoryFiles(), str(uuid4()))
        self.index.sync()
        self.said: list[str] = []
        self.watch = JobDesk(self.index, self.said.append, None)
        file = folder / "keys.json"
        self.keys = {n: add_key(file, n, scope, where) for n, (scope, where) in WHERES.items()}
        self.ring = KeyRing(file)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def client(desk: Desk) -> Iterator[TestClient]:
    with asking(desk.index, keys=desk.ring) as client:
        yield client


def ask(client: TestClient, desk: Desk, who: str, kind: str) -> Any:
    bearer = {"Authorization": f"Bearer {desk.keys[who]}"}
    return client.post("/indexes/sample/jobs", json={"kind": kind}, headers=bearer)


def get(client: TestClient, desk: Desk, who: str, what: str) -> Any:
    bearer = {"Authorization": f"Bearer {desk.keys[who]}"}
    return client.get(f"/indexes/sample/{what}", headers=bearer)


def test_an_admin_asks_and_the_watch_does_it(client: TestClient, desk: Desk) -> None:
    before = desk.index.parts.store.open().frontier()
    assert ask(client, desk, "ops", "verify").json()["state"] == "waiting"
    assert desk.index.parts.store.open().frontier() == before
    desk.watch.attend()
    (job,) = get(client, desk, "ops", "jobs").json()["jobs"]
    assert (job["state"], job["kind"], job["by"]) == ("done", "verify", "key ops")
    assert job["report"]["agrees"] is True
    assert desk.said == ["sample: verify, asked for by key ops"]


def test_a_plan_and_a_sync_are_reported(client: TestClient, desk: Desk) -> None:
    table: Any = desk.index.parts.table
    table.upsert({rid("new"): values("fresh white", 3)})
    for kind in ("plan", "sync"):
        ask(client, desk, "ops", kind)
    for _ in range(3):
        desk.watch.attend()
    synced, planned = get(client, desk, "ops", "jobs").json()["jobs"]
    assert (planned["report"]["to_embed"], synced["report"]["embedded"]) == (1, 1)
    assert desk.index.status().in_step


def test_quarantined_rows_are_listed_and_tried_again(client: TestClient, desk: Desk) -> None:
    found = get(client, desk, "reader", "quarantine").json()
    assert found["rows"] == 1
    (row,) = found["quarantine"]
    assert (row["key"], row["reason"], row["attempts"]) == ("bad", "too <b>odd</b>", 1)
    desk.embedder.word = "nothing is refused"
    ask(client, desk, "ops", "retry")
    desk.watch.attend()
    assert get(client, desk, "reader", "quarantine").json()["quarantine"] == []
    assert desk.index.status().rows == 2


@pytest.mark.parametrize("who", ["reader", "few"])
def test_only_an_admin_key_may_ask(client: TestClient, desk: Desk, who: str) -> None:
    refused = ask(client, desk, who, "sync")
    assert refused.status_code == 403
    assert refused.json()["hint"]
    assert desk.index.jobs() == ()


def test_without_keys_nobody_may_ask_though_everybody_may_read(desk: Desk) -> None:
    with asking(desk.index) as client:
        assert client.post("/indexes/sample/jobs", json={"kind": "sync"}).status_code == 403
        assert client.get("/indexes/sample/jobs").json()["may_ask"] is False
        assert client.get("/indexes/sample/quarantine").json()["rows"] == 1
    assert desk.index.jobs() == ()


def test_the_page_learns_whether_the_key_may_ask(client: TestClient, desk: Desk) -> None:
    assert get(client, desk, "ops", "jobs").json()["may_ask"] is True
    assert get(client, desk, "reader", "jobs").json()["may_ask"] is False


@pytest.mark.parametrize("path", PATHS)
def test_a_key_for_some_rows_sees_neither_jobs_nor_quarantine(
    client: TestClient, desk: Desk, path: str
) -> None:
    ask(client, desk, "ops", "verify")
    desk.watch.attend()
    refused = get(client, desk, "few", path)
    assert refused.status_code == 403
    assert set(refused.json()) == {"error", "hint"}
    assert "bad" not in refused.text


def test_a_limited_index_refuses_everything_about_jobs(desk: Desk) -> None:
    few: Any = desk.index.limited("num = 1")
    for call in (few.jobs, few.quarantine, lambda: few.ask_for("sync"), lambda: few.do_job(None)):
        with pytest.raises(Exception, match="limited to some rows"):
            call()


def test_a_request_that_nobody_checked_may_not_ask() -> None:
    views = Views({}, keyed=True)
    with pytest.raises(Refused) as refused:
        views.check_admin()
    assert refused.value.status == 401
    token = CALLER.set(Caller("token somebody"))
    try:
        with pytest.raises(Refused) as refused:
            views.check_admin()
    finally:
        CALLER.reset(token)
    assert refused.value.status == 403


@pytest.mark.parametrize("kind", ["drop", "rebuild", "SYNC", "", None, 1, ["sync"]])
def test_nothing_else_can_be_asked_for(client: TestClient, desk: Desk, kind: Any) -> None:
    assert ask(client, desk, "ops", kind).status_code == 422
    assert desk.index.jobs() == ()


def test_a_page_of_another_site_cannot_ask(client: TestClient, desk: Desk) -> None:
    headers = {"Authorization": f"Bearer {desk.keys['ops']}", "Origin": "https://evil.example"}
    asked = client.post("/indexes/sample/jobs", json={"kind": "sync"}, headers=headers)
    assert asked.status_code == 403
    form = client.post("/indexes/sample/jobs", data={"kind": "sync"}, headers={**headers})
    assert form.status_code == 403
    assert desk.index.jobs() == ()


def test_a_job_that_fails_does_not_end_the_watch(client: TestClient, desk: Desk) -> None:
    def fails() -> Any:
        raise RuntimeError("out of luck")

    desk.index.__dict__["verify"] = fails
    ask(client, desk, "ops", "verify")
    desk.watch.attend()
    (job,) = get(client, desk, "ops", "jobs").json()["jobs"]
    assert (job["state"], job["error"]) == ("failed", "RuntimeError: out of luck")
    desk.watch.attend()


def test_each_job_has_a_line_in_the_audit_log(
    client: TestClient, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="lakewake.audit"):
        ask(client, desk, "ops", "verify")
        ask(client, desk, "reader", "sync")
    lines = [json.loads(r.message) for r in caplog.records if r.name == "lakewake.audit"]
    shown = [(line["caller"], line["asked"], line["text"], line["outcome"]) for line in lines]
    assert shown == [
        ("key ops", "job", "verify", "answered"),
        ("key reader", "job", "sync", "scope"),
    ]


def test_facets_follow_the_question_over_http(client: TestClient, desk: Desk) -> None:
    bearer = {"Authorization": f"Bearer {desk.keys['reader']}"}
    found = client.post("/indexes/sample/facets", json={"where": {"num": 1}}, headers=bearer)
    assert found.json()["facets"][0]["max"] == 1
    bearer = {"Authorization": f"Bearer {desk.keys['few']}"}
    body = {"text": "wine", "where": {"num": {">": 0}}}
    found = client.post("/indexes/sample/facets", json=body, headers=bearer)
    assert [(f["min"], f["max"]) for f in found.json()["facets"]] == [(1, 1)]


@pytest.mark.parametrize("path", ["/", "/operators"])
def test_both_pages_need_no_key_and_have_the_policy(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not {word for word in ("<script>", "style=", "onclick") if word in page.text}


class Stop:
    """A signal that has come, or has not."""

    def __init__(self, come: bool) -> None:
        self.come = come

    def wait(self, _: float) -> bool:
        return self.come


@pytest.mark.parametrize("come", [True, False])
def test_a_watch_that_is_asked_to_stop_begins_no_job(
    client: TestClient, desk: Desk, come: bool
) -> None:
    ask(client, desk, "ops", "verify")
    stop: Any = Stop(come)
    assert attended([desk.watch], stop) is come
    assert desk.index.jobs()[0].state == ("waiting" if come else "done")


def test_jobs_that_cannot_be_read_are_reported_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: str = "") -> Any:
        raise OSError("no such share")

    monkeypatch.setattr(desk.index._jobs._files, "names", fails)
    for _ in range(3):
        desk.watch.attend()
    assert len(desk.said) == 1
    assert "no such share" in desk.said[0]
