"""The lease of an index in S3: who has it, for how long, and who may take it over."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from lakewake.errors import StaleFrontier, StoreError
from lakewake.net.conditional import Tagged, Unsure
from lakewake.store.hudi.lease import LEASE, Lease, LeaseHold, state_of, writer_of
from lakewake.store.hudi.lock import LOCK
from lakewake.store.location import Folder


@dataclass
class Objects:
    """One object, in a file that everybody can read; it loses answers on demand."""

    folder: Path
    tag: str = ""
    lost_before: int = 0
    lost_after: int = 0
    tags: count[int] = field(default_factory=lambda: count(1))

    def read(self, name: str) -> Tagged | None:
        if not self.tag:
            return None
        return Tagged((self.folder / name).read_bytes(), self.tag)

    def put(self, name: str, content: bytes, after: str | None) -> str | None:
        if self.lost_before:
            self.lost_before -= 1
            raise Unsure("no answer")
        if (after or "") != self.tag:
            return None
        self.tag = str(next(self.tags))
        (self.folder / name).write_bytes(content)
        if self.lost_after:
            self.lost_after -= 1
            raise Unsure("no answer")
        return self.tag


@dataclass
class Clock:
    """Time that passes only while somebody waits."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lease(objects: Objects, clock: Clock) -> Lease:
    return Lease(objects, Folder(objects.folder), "wines", clock, clock.sleep)


def dead_writer(lease: Lease) -> LeaseHold:
    """A writer that has the lease and does not renew it."""
    return LeaseHold(lease, "dead", lease._acquired("dead", 0))


def test_a_free_lease_is_had_at_once_and_is_free_again_afterwards(
    lease: Lease, objects: Objects, clock: Clock
) -> None:
    for _ in range(2):
        with lease.held() as hold:
            hold.check()
            assert writer_of((objects.folder / LOCK).read_bytes())
        assert writer_of((objects.folder / LOCK).read_bytes()) == ""
    assert clock.now == 0


def test_a_dead_writer_holds_others_up_for_the_lease_and_one_look(
    lease: Lease, clock: Clock
) -> None:
    dead_writer(lease)
    with lease.held():
        assert LEASE < clock.now <= LEASE + 1


def test_a_writer_that_renews_its_lease_keeps_it(lease: Lease, clock: Clock) -> None:
    hold = dead_writer(lease)

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        assert hold.renewed()

    waiting = Lease(lease.objects, lease.location, "wines", clock, sleep)
    with pytest.raises(StoreError, match="writing index 'wines' for 100 seconds"):
        waiting._acquired("another", 100)
    hold.check()


def test_a_writer_whose_lease_was_taken_over_is_stopped_and_cannot_release_it(
    lease: Lease,
) -> None:
    woken = dead_writer(lease)
    with lease.held() as hold:
        with pytest.raises(StaleFrontier, match="another process took over"):
            woken.check()
        assert not woken.renewed()
        assert woken.lost.is_set()
        woken.release()
        hold.check()


def test_what_a_writer_does_is_stopped_until_it_ends_once_the_lease_is_lost(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakewake.store.hudi.lease.RENEWED_EVERY", 0.001)
    monkeypatch.setattr("lakewake.store.hudi.lease.STOPPED_EVERY", 0.001)
    woken = dead_writer(lease)
    stopped = threading.Semaphore(0)
    with lease.held(), woken.when_lost(stopped.release):
        keeping = threading.Thread(target=woken.keep)
        keeping.start()
        # More than once: Hudi may begin another job after the first was stopped.
        assert stopped.acquire(timeout=30)
        assert stopped.acquire(timeout=30)
        woken.done.set()
        keeping.join()


def test_a_writer_that_cannot_renew_its_lease_stops_before_others_may_take_it(
    lease: Lease, objects: Objects, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = dead_writer(lease)
    stopped_at: list[float] = []

    def wait(seconds: float) -> bool:
        clock.sleep(seconds)
        return bool(stopped_at)

    objects.lost_before = 1_000
    monkeypatch.setattr(hold.done, "wait", wait)
    with hold.when_lost(lambda: stopped_at.append(clock.now)):
        hold.keep()
    assert stopped_at
    assert stopped_at[0] < LEASE


def test_a_lost_answer_is_found_out(lease: Lease, objects: Objects) -> None:
    objects.lost_after = 1
    with lease.held() as hold:
        hold.check()
        assert isinstance(hold, LeaseHold)
        objects.lost_after = 1
        assert not hold.renewed()
        assert hold.renewed()
        hold.check()


def test_a_lock_that_is_not_a_lease_is_taken_over_in_the_end(
    lease: Lease, objects: Objects, clock: Clock
) -> None:
    objects.put(LOCK, b"something else", None)
    with lease.held():
        assert clock.now > LEASE


def test_every_state_is_unlike_all_others() -> None:
    assert state_of("a") != state_of("a")
    assert writer_of(state_of("a")) == "a"


def test_an_executor_can_check_the_lease(lease: Lease) -> None:
    with lease.held() as hold:
        pickle.loads(pickle.dumps(hold.check))()


def test_one_of_many_writers_has_the_lease_at_a_time(tmp_path: Path) -> None:
    lock, objects = threading.Lock(), Objects(tmp_path)

    class Atomic(Objects):
        def read(self, name: str) -> Tagged | None:
            with lock:
                return objects.read(name)

        def put(self, name: str, content: bytes, after: str | None) -> str | None:
            with lock:
                return objects.put(name, content, after)

    lease = Lease(Atomic(tmp_path), Folder(tmp_path), "wines", sleep=lambda _: None)
    inside: list[int] = []
    most: list[int] = []

    def write(writer: int) -> None:
        for _ in range(20):
            with lease.held():
                inside.append(writer)
                most.append(len(inside))
                inside.remove(writer)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(most), max(most)) == (80, 1)
