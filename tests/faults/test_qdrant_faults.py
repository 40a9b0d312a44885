"""An index in Qdrant behind a bad network, a strict server, kill -9 and racing processes."""

from __future__ import annotations

import datetime
import ipaddress
import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lakewake.embed.cache import FILE, SqliteVectorCache
from lakewake.errors import OutcomeUnknown, StoreError, StoreUnreachable
from lakewake.model.plan import Action
from lakewake.model.query import Query
from lakewake.source.memory import MemoryTable
from lakewake.store.lance.store import LanceStore
from lakewake.store.qdrant.location import (
    CONNECTIONS,
    KEY_VARIABLE,
    QdrantLocation,
)
from lakewake.store.qdrant.points import TRIES
from lakewake.store.qdrant.store import QdrantStore
from lakewake.sync import SyncOptions, sync
from lakewake.verify import verify
from support import committing
from support.committing import RECIPE, batch_number, expected, frontier, location_at
from support.oracle import built_from_nothing, indexed
from support.qdrant.rest_server import Hangup, Refused, Request, RestServer, honest
from support.racing import kill_after, start_together, started
from support.sampling import HASHING, rid, sample_parts, sample_recipe, values
from support.sampling import SCHEMA as ROW_SCHEMA

KILLS = 4
RACES = 15
AHEAD = np.array([0, 1, 2, 3], np.float32)
SECRET = "s3cr3t-key"


def state(location: QdrantLocation) -> tuple[int, dict[str, int]]:
    return committing.state(QdrantStore(location, "wines", "wines"))


@pytest.fixture
def served() -> Iterator[RestServer]:
    server = RestServer()
    yield server
    CONNECTIONS.close(server.location())
    server.close()


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def store(served: RestServer, waits: list[float]) -> QdrantStore:
    return QdrantStore(served.location(), "wines", "wines", sleep=waits.append)


@pytest.fixture
def built(store: QdrantStore) -> QdrantStore:
    store.create(RECIPE, batch_number(0), frontier(0), after=0)
    return store


def lost_before(request: Request) -> None:
    raise Hangup


def lost_after(request: Request) -> None:
    request.do()
    raise Hangup


def failed_before(request: Request) -> None:
    raise Refused(500, "out of sorts")


def failed_after(request: Request) -> None:
    request.do()
    raise Refused(503, "out of sorts")


def too_many(request: Request) -> None:
    raise Refused(429, "slow down", Retry_After="3")


def too_many_and_no_more(request: Request) -> None:
    raise Refused(429, "slow down")


FAULTS = [lost_before, lost_after, failed_before, failed_after, too_many, too_many_and_no_more]


def only(number: int, fault: Callable[[Request], None]) -> tuple[Any, list[int]]:
    """A fault for one request, counted from now, and a list of the requests it was applied to."""
    numbers, done = count(), list[int]()

    def mischief(request: Request) -> None:
        if next(numbers) == number:
            done.append(number)
            fault(request)

    return mischief, done


@pytest.mark.parametrize("fault", FAULTS)
def test_a_commit_lands_whichever_of_its_requests_fails_once(
    fault: Callable[[Request], None],
    built: QdrantStore,
    served: RestServer,
    waits: list[float],
) -> None:
    for n in range(60):
        served.mischief, done = only(n, fault)
        built.commit(batch_number(n + 1), frontier(n), frontier(n + 1))
        served.mischief = honest
        assert state(served.location()) == (n + 1, expected(n + 1))
        if not done:
            break
    assert 10 < n < 59
    assert len(waits) == n
    assert all(w == 3.0 for w in waits) is (fault is too_many)


@pytest.mark.parametrize("fault", [lost_before, lost_after])
def test_a_build_lands_whichever_of_its_requests_fails_once(
    fault: Callable[[Request], None], store: QdrantStore, served: RestServer
) -> None:
    for n in range(90):
        served.mischief, done = only(n, fault)
        store.create(RECIPE, batch_number(n), frontier(n), after=n)
        served.mischief = honest
        assert state(served.location()) == (n, expected(n))
        if not done:
            break
    assert 20 < n < 89


def failure_of(work: Callable[[], None]) -> StoreError | None:
    try:
        work()
    except StoreError as error:
        return error
    return None


@pytest.mark.parametrize("fault", [lost_before, lost_after, failed_before])
def test_a_server_lost_at_any_request_leaves_the_old_index_or_the_new(
    fault: Callable[[Request], None], built: QdrantStore, served: RestServer, waits: list[float]
) -> None:
    errors_seen = set()
    for n in range(60):
        numbers = count()
        served.mischief = lambda r, n=n, numbers=numbers: fault(r) if next(numbers) >= n else None
        waits.clear()
        error = failure_of(
            lambda n=n: built.commit(batch_number(n + 1), frontier(n), frontier(n + 1))
        )
        served.mischief = honest
        if error is None:
            break
        errors_seen.add((type(error), error.landed))
        assert error.hint
        assert len(waits) in (TRIES - 1, 2 * (TRIES - 1))
        assert state(served.location()) in [(n, expected(n)), (n + 1, expected(n + 1))]
        fresh = QdrantStore(served.location(), "wines", "wines")
        fresh.commit(batch_number(n + 1), frontier(n), frontier(n + 1))
        assert state(served.location()) == (n + 1, expected(n + 1))
    assert 10 < n < 59
    assert errors_seen == {
        (StoreUnreachable, "nothing was written"),
        (OutcomeUnknown, "the commit may or may not have landed"),
        (OutcomeUnknown, "the batch is written whole, and lands with the next sync"),
    }


def test_a_request_without_an_answer_is_sent_again(built: QdrantStore, served: RestServer) -> None:
    impatient = served.location(timeout=1)
    store = QdrantStore(impatient, "wines", "wines", sleep=lambda _: None)
    reader = store.open()

    def stalls(request: Request) -> None:
        if request.path.endswith("points/query"):
            served.mischief = honest
            served.released.wait()

    served.mischief = stalls
    assert reader.search(Query(AHEAD, 2)).num_rows == 2
    assert served.mischief is honest
    CONNECTIONS.close(impatient)


def test_an_unreachable_server_is_an_error_with_its_address(waits: list[float]) -> None:
    # Nothing listens on the port of a stopped server.
    ended = RestServer()
    ended.close()
    location = ended.location()
    with pytest.raises(StoreUnreachable, match=rf"{location.url} cannot be reached") as error:
        QdrantStore(location, "wines", "wines", sleep=waits.append).open()
    assert error.value.landed == "nothing was written"
    assert error.value.hint
    assert len(waits) == TRIES - 1
    assert waits == sorted(waits)


def test_something_else_at_the_address_is_an_error(store: QdrantStore, served: RestServer) -> None:
    def another_service(request: Request) -> None:
        raise Refused(200, "hello")

    served.mischief = another_service
    with pytest.raises(StoreError):
        store.open()


def test_an_old_server_is_refused_before_anything_is_written(
    store: QdrantStore, served: RestServer
) -> None:
    served.version = "1.15.4"
    with pytest.raises(StoreError, match=r"version 1\.15, an index needs 1\.16"):
        store.create(RECIPE, batch_number(0), frontier(0), after=0)
    assert served.requests == []


def test_a_refused_request_is_not_sent_again(
    built: QdrantStore, served: RestServer, waits: list[float]
) -> None:
    def refuses(request: Request) -> None:
        if (request.method, request.path.rpartition("/")[2]) == ("PUT", "points"):
            raise Refused(400, "Wrong input: too long")

    served.mischief = refuses
    with pytest.raises(StoreError, match="too long") as error:
        built.commit(batch_number(1), frontier(0), frontier(1))
    assert error.value.landed == "nothing was written"
    assert waits == []
    assert state(served.location()) == (0, expected(0))


def test_a_read_only_key_is_enough_to_read(built: QdrantStore, served: RestServer) -> None:
    def read_only(request: Request) -> None:
        reads = ("scroll", "count", "query", "exists", "collections", "aliases")
        retrieves = (request.method, request.path.rpartition("/")[2]) == ("POST", "points")
        if not retrieves and request.path.rpartition("/")[2] not in reads:
            raise Refused(403)

    served.mischief = read_only
    reader = QdrantStore(served.location(), "wines", "wines").open()
    with reader.pinned():
        assert reader.search(Query(AHEAD, 2)).num_rows == 2
        assert reader.counts() == (5, 5)
    with pytest.raises(StoreError, match=r"refuses the key \(403\)"):
        built.commit(batch_number(1), frontier(0), frontier(1))


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[RestServer]:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    server = RestServer(key=SECRET)
    yield server
    CONNECTIONS.close(server.location())
    server.close()


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
@pytest.mark.parametrize("key", [None, "wrong"])
def test_without_the_key_the_error_names_the_variable_and_no_key(
    key: str | None, guarded: RestServer, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    if key:
        monkeypatch.setenv(KEY_VARIABLE, key)
    with pytest.raises(StoreError, match=r"refuses the key \(401\)") as error:
        QdrantStore(guarded.location(), "wines", "wines", sleep=waits.append).open()
    assert KEY_VARIABLE in error.value.hint
    assert "wrong" not in str(error.value)
    assert waits == []


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_the_key_is_neither_stored_nor_pickled(
    guarded: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, SECRET)
    store = QdrantStore(guarded.location(), "wines", "wines")
    store.create(RECIPE, batch_number(0), frontier(0), after=0)
    reader = store.open()
    with store.staging() as staging:
        kept = pickle.dumps([reader, staging, reader.scan_parts(["_key"])])
    assert SECRET.encode() not in kept
    assert SECRET not in f"{vars(store)} {reader} {staging}"
    payloads = guarded.client.scroll("wines.frontier", with_payload=True)[0]
    assert SECRET not in str(payloads)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate of this machine, with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lakewake test")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    own = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = tmp_path / "server.pem"
    file.write_bytes(made.public_bytes(pem) + own)
    return file


@pytest.fixture
def encrypted(certificate: Path) -> Iterator[RestServer]:
    server = RestServer(key=SECRET, certificate=certificate)
    yield server
    CONNECTIONS.close(server.location())
    server.close()


def test_an_index_is_built_and_read_over_tls_with_a_key(
    encrypted: RestServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv(KEY_VARIABLE, SECRET)
    store = QdrantStore(encrypted.location(), "wines", "wines")
    store.create(RECIPE, batch_number(0), frontier(0), after=0)
    assert state(encrypted.location()) == (0, expected(0))


def test_an_untrusted_certificate_is_an_error_at_once(
    encrypted: RestServer, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv(KEY_VARIABLE, SECRET)
    with pytest.raises(StoreError, match="cannot be reached") as error:
        QdrantStore(encrypted.location(), "wines", "wines", sleep=waits.append).open()
    assert "certificate" in error.value.hint
    assert waits == []
    assert encrypted.requests == []


@pytest.mark.parametrize("where", ["folder", "server"])
def test_a_commit_killed_anywhere_lands_whole_or_not_at_all(
    where: str, served: RestServer, tmp_path: Path
) -> None:
    dice = random.Random(7)
    address = str(tmp_path / "index") if where == "folder" else served.location().url
    for _ in range(KILLS):
        process = started("support.committing", "commit_for_ever", address)
        reported = kill_after(process, dice.randint(1, 3), dice.uniform(0, 0.1))
        sync, held = state(location_at(address))
        # A commit that was decided lands with the next one.
        assert sync in (reported, reported + 1)
        assert held == expected(sync)
        CONNECTIONS.close(location_at(address))


def test_racing_processes_commit_each_frontier_once(served: RestServer) -> None:
    location = served.location()
    QdrantStore(location, "wines", "wines").create(RECIPE, batch_number(0), frontier(0), after=0)
    race = partial(started, "support.committing", "commit_raced", location.url)
    writers = [race(writer, str(RACES)) for writer in ("one", "two")]
    start_together(writers)
    won = [int(w.communicate()[0]) for w in writers]
    sync, held = state(location)
    assert sync == sum(won) == RACES
    assert {k for k in held if k.startswith("shared")} == {f"shared{n + 1}" for n in range(RACES)}
    for name, times in zip(("one", "two"), won, strict=True):
        assert sum(k.startswith(name) for k in held) == times


def test_syncs_over_a_bad_network_keep_the_index_equal_to_its_table(served: RestServer) -> None:
    dice = random.Random(20_260_729)
    table = MemoryTable(sample_recipe(), ROW_SCHEMA)
    store = QdrantStore(served.location(), "sample", "sample", sleep=lambda _: None)
    parts = sample_parts(table, store, recipe=sample_recipe())

    def bad(request: Request) -> None:
        if dice.random() < 0.25:
            dice.choice(FAULTS)(request)

    for n in range(12):
        table.upsert({rid(f"k{dice.randrange(9)}"): values(f"text {n} {i}", i) for i in range(4)})
        table.delete([rid(f"k{dice.randrange(9)}")])
        served.mischief = bad
        # A call may fail more often than it is retried.
        with suppress(StoreError):
            sync(parts, SyncOptions(rebuild=n == 6))
        served.mischief = honest
        sync(parts)
        assert indexed(parts) == built_from_nothing(parts)
    assert verify(parts).agrees


def test_an_index_that_moves_from_lance_to_qdrant_embeds_nothing(
    served: RestServer, tmp_path: Path
) -> None:
    recipe = sample_recipe()
    table = MemoryTable(recipe, ROW_SCHEMA)
    table.upsert({rid(f"k{n}"): values(f"text number {n}", n) for n in range(40)})
    in_lance = sample_parts(
        table,
        LanceStore(str(tmp_path), "sample"),
        recipe=recipe,
        vector_cache=SqliteVectorCache(tmp_path / FILE, recipe.model),
    )
    assert sync(in_lance).embedded == 40
    in_qdrant = sample_parts(
        table,
        QdrantStore(served.location(), "sample", "sample"),
        recipe=recipe,
        vector_cache=SqliteVectorCache(tmp_path / FILE, recipe.model),
    )
    report = sync(in_qdrant)
    assert (report.action, report.embedded, report.reused) == (Action.BUILD, 0, 40)
    assert in_qdrant.embedder.received == []
    assert indexed(in_qdrant) == indexed(in_lance) == built_from_nothing(in_lance)
    table.upsert({rid("k1"): values("text number 1", 7), rid("k2"): values("changed")})
    assert sync(in_qdrant).embedded == 1
    assert indexed(in_qdrant) == built_from_nothing(in_qdrant)


def test_distributed_tasks_stage_and_read_rows(served: RestServer) -> None:
    recipe = sample_recipe()
    table = MemoryTable(recipe, ROW_SCHEMA)
    table.parts = 3
    store = QdrantStore(served.location(), "sample", "sample")
    parts = sample_parts(table, store, recipe=recipe, model=HASHING)
    table.upsert({rid(f"k{n}"): values(f"text number {n}", n) for n in range(12)})
    assert sync(parts).chunks_upserted == 12
    table.upsert({rid(f"k{n}"): values(f"changed {n}", n) for n in range(5)})
    table.delete([rid("k7")])
    assert sync(parts).action is Action.FOLLOW
    assert indexed(parts) == built_from_nothing(replace(parts, model=None))
    assert verify(parts).agrees
