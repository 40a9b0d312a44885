"""Errors when S3 does not answer as it should."""

from __future__ import annotations

import pytest

import lakewake
from lakewake.errors import LakewakeError, StoreError, StoreUnreachable, TableError
from lakewake.source.look import look_at
from lakewake.store.lance.store import LanceStore
from lakewake.testing.samples import as_stored, batch, chunk, contents, frontier, query, recipe
from support.gateway import Gateway

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(1800)]
CONFIG = """
[[index]]
name = "wines"
table = "s3a://{bucket}/table"
text = "{{txt}}"
store = "lance+s3://{bucket}/index"
model = {{ provider = "hashing", dimension = 8 }}
"""


def built(bucket: str) -> LanceStore:
    store = LanceStore(f"s3://{bucket}/index", "wines")
    store.create(recipe(), batch(chunk("a")), frontier(1), after=0)
    return store


def calls(address: str) -> list:
    """Every operation on an index."""
    store = LanceStore(address, "wines")
    return [
        store.open,
        store.generation,
        store.maintain,
        lambda: store.create(recipe(), batch(chunk("b")), frontier(1), after=0),
        lambda: store.commit(batch(chunk("b")), frontier(1), frontier(2)),
    ]


def refused(call, kind: type[LakewakeError]) -> LakewakeError:
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    assert caught.value.landed == "nothing was written"
    assert "AWS_ENDPOINT_URL" in caught.value.hint
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint
    assert "\n" not in caught.value.fact
    return caught.value


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_credentials_are_an_error_and_nothing_is_written(name, bucket, monkeypatch):
    store = built(bucket)
    with monkeypatch.context() as patch:
        patch.setenv(name, "wrong")
        for call in calls(f"s3://{bucket}/index"):
            error = refused(call, StoreUnreachable)
            assert f"s3://{bucket}/index" in error.fact
            assert "wrong" not in str(error)
        error = refused(lambda: look_at(f"s3a://{bucket}/table"), TableError)
        assert f"s3a://{bucket}/table" in error.fact
    assert contents(store.open()) == as_stored(chunk("a"))


def test_credentials_can_come_from_a_profile(gateway, bucket, tmp_path, monkeypatch):
    built(bucket)
    for name in gateway.environment():
        monkeypatch.delenv(name)
    for name, value in gateway.profile(tmp_path).items():
        monkeypatch.setenv(name, value)
    store = LanceStore(f"s3://{bucket}/index", "wines")
    store.commit(batch(chunk("b")), frontier(1), frontier(2))
    assert contents(store.open()) == as_stored(chunk("a"), chunk("b"))


def test_a_bucket_that_is_not_there_is_named(gateway):
    open_, _, maintain, create, _ = calls("s3://no-such-bucket/index")
    for call, kind in (
        (open_, StoreUnreachable),
        (maintain, StoreUnreachable),
        (create, StoreError),
    ):
        assert "there is no bucket 'no-such-bucket'" in refused(call, kind).fact


def test_a_table_in_a_missing_bucket_is_an_error(gateway):
    with pytest.raises(TableError, match="there is no table at s3a://no-such-bucket/table"):
        look_at("s3a://no-such-bucket/table")


def test_an_unreachable_server_is_an_error_and_the_index_is_intact_afterwards(
    program, tmp_path, monkeypatch
):
    server = Gateway(program, tmp_path)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    server.files().create_dir("lake")
    store = built("lake")
    reader = store.open()
    server.stop()
    for call in calls("s3://lake/index"):
        refused(call, StoreUnreachable)
    refused(lambda: reader.search(query("red")), StoreUnreachable)
    refused(lambda: look_at("s3a://lake/table"), TableError)
    again = Gateway(program, tmp_path)
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", again.endpoint)
        index = LanceStore("s3://lake/index", "wines")
        assert contents(index.open()) == as_stored(chunk("a"))
    finally:
        again.stop()


def test_status_names_whether_the_table_or_the_index_is_unreachable(bucket, tmp_path, monkeypatch):
    file = tmp_path / "lakewake.toml"
    file.write_text(CONFIG.format(bucket=bucket))
    gone = pytest.raises(TableError, match=f"there is no table at s3a://{bucket}/table")
    with lakewake.open(file) as lake, gone:
        lake["wines"].status()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with lakewake.open(file) as lake:
        error = refused(lake["wines"].status, StoreUnreachable)
    assert f"s3://{bucket}/index" in error.fact
