"""The syncing process beside the server: real processes that run, die or refuse to end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from lakewake.cli.serve import sync_command
from lakewake.serve.alive import LONGEST_PAUSE, pause_before
from lakewake.serve.following import LINE_CHARS, LINES, Follower
from support.serving import asking, wait_until, wine_index


@contextmanager
def following(script: str, pause: float = 0.0) -> Iterator[tuple[Follower, list[str]]]:
    said: list[str] = []
    follower = Follower([sys.executable, "-uc", script], said.append, lambda _: pause)
    follower.start()
    try:
        yield follower, said
    finally:
        follower.stop()
        assert not follower.state.running


def test_output_of_the_watch_is_passed_on_and_its_last_lines_are_kept() -> None:
    script = f"print(*range({LINES + 3}), sep='\\n'); print('x' * 9999); input()"
    with following(script) as (follower, said):
        wait_until(lambda: len(said) == LINES + 4)
        state = follower.state
        assert state.running
        assert state.restarts == 0
        assert len(state.last_words) == LINES
        assert state.last_words[-1] == "x" * LINE_CHARS
        assert said[0] == "0"


def test_a_watch_that_dies_is_started_again() -> None:
    with following("import sys; sys.exit(7)") as (follower, said):
        wait_until(lambda: follower.state.restarts >= 2)
        assert any("the sync process ended with code 7; restarting in" in line for line in said)


def test_the_pause_before_a_restart_grows_up_to_a_limit() -> None:
    assert [pause_before(n) for n in (1, 2, 3)] == [1.0, 2.0, 4.0]
    assert pause_before(1000) == LONGEST_PAUSE


def test_stopping_does_not_wait_for_the_next_restart() -> None:
    with following("", pause=60) as (_, said):
        wait_until(lambda: bool(said))
        began = monotonic()
    assert monotonic() - began < 5


def test_a_command_that_cannot_be_started_is_reported_and_tried_again() -> None:
    said: list[str] = []
    follower = Follower(["/nowhere/lakewake"], said.append, lambda _: 0.0)
    follower.start()
    wait_until(lambda: follower.state.restarts >= 1)
    follower.stop()
    assert "cannot be started" in said[0]


def test_a_watch_can_stop_by_itself_before_it_is_killed() -> None:
    script = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('stopping'), sys.exit(0)))\n"
        "print('there'); signal.pause()"
    )
    with following(script) as (follower, said):
        wait_until(lambda: "there" in said)
        follower.stop()
        assert said == ["there", "stopping"]
        assert follower.state.restarts == 0


def test_a_watch_that_does_not_stop_is_killed_with_its_children() -> None:
    script = (
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(child.pid)\n"
        "while True: signal.pause()"
    )
    with following(script) as (follower, said):
        wait_until(lambda: bool(said))
        began = monotonic()
        follower.stop()
        assert monotonic() - began < 5
    wait_until(lambda: not _lives(int(said[0])))


def test_passwords_are_removed_from_the_output_of_the_watch() -> None:
    with following("print('cannot reach s3://me:s3cr3t@host/x'); input()") as (follower, said):
        wait_until(lambda: bool(said))
        assert said == ["cannot reach s3://***@host/x"]
        assert "s3cr3t" not in str(follower.state)


def test_the_list_of_indexes_shows_the_state_of_the_watch() -> None:
    index, _ = wine_index()
    with (
        following("print('watching'); input()") as (follower, said),
        asking(index, app={"follower": follower}) as client,
    ):
        wait_until(lambda: bool(said))
        watch = {"running": True, "restarts": 0, "last_words": ["watching"]}
        assert client.get("/indexes").json()["watch"] == watch
        assert client.get("/indexes/sample/status").json()["watch"] == watch


def test_a_tethered_command_ends_with_its_parent(tmp_path: Path) -> None:
    # Stands in for the server: starts the command, prints its process id, and is killed.
    command = list(sync_command(tmp_path / "lakewake.toml", 1))
    assert command[1:3] == ["-m", "lakewake.cli.tethered"]
    waiting = [sys.executable, "-c", _TETHERED]
    script = (
        "import subprocess, sys, signal\n"
        f"p = subprocess.Popen({waiting!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "p.stdout.readline(); print(p.pid, flush=True); signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert _lives(child)
    parent.kill()
    parent.wait()
    wait_until(lambda: not _lives(child))
    parent.stdout.close()


_TETHERED = """
import signal, threading
from lakewake.cli.tethered import follow_parent
threading.Thread(target=follow_parent, daemon=True).start()
print("there", flush=True)
signal.pause()
"""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie counts as dead.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_asking_twice_to_stop_sends_one_signal() -> None:
    script = (
        "import signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('asked'))\n"
        "print('there')\n"
        "while True: signal.pause()"
    )
    with following(script) as (follower, said):
        wait_until(lambda: "there" in said)
        follower.ask_to_stop()
        follower.ask_to_stop()
        wait_until(lambda: "asked" in said)
        assert said.count("asked") == 1
