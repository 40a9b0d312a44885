"""Find every TCP port that a process and its children open beyond loopback while they run.

Processes are recognised by an environment variable, which children inherit. The kernel's table
of sockets is read every few milliseconds; only sockets beyond loopback are examined.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from uuid import uuid4

VARIABLE = "LAKEWAKE_TEST_LISTENING"
#: Seconds between two reads.
PAUSE = 0.02
_LISTENS = "0A"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
#: 127.0.0.0/8, ::1 and ::ffff:127.0.0.0/104 as the kernel prints them.
_LOOPBACK_ENDS = ("7F",)
_LOOPBACK_6 = "00000000000000000000000001000000"
_MAPPED = "0000000000000000FFFF0000"


class Port(NamedTuple):
    """A port that listens beyond loopback, and the command of the process that opened it."""

    address: str
    port: int
    command: str


def is_loopback(address: str) -> bool:
    """Whether an address, as /proc/net/tcp or tcp6 prints it, is a loopback address."""
    if len(address) == 8:
        return address.endswith(_LOOPBACK_ENDS)
    mapped = address.startswith(_MAPPED) and address.endswith(_LOOPBACK_ENDS)
    return address == _LOOPBACK_6 or mapped


class Listening:
    """Ports that processes with `environment` open beyond loopback while the context lasts."""

    def __init__(self) -> None:
        self._mark = uuid4().hex
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._judged: dict[str, Port | None] = {}

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of a watched process."""
        return {VARIABLE: self._mark}

    @property
    def open_ports(self) -> list[Port]:
        """The ports seen so far."""
        return [port for port in list(self._judged.values()) if port]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(PAUSE):
            for table in _TABLES:
                self._look(table)

    def _look(self, table: Path) -> None:
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            _, local, _, state, *rest = line.split()
            inode = rest[5]
            address, port = local.split(":")
            if state == _LISTENS and not is_loopback(address) and inode not in self._judged:
                command = self._owner(inode)
                self._judged[inode] = Port(address, int(port, 16), command) if command else None

    def _owner(self, inode: str) -> str:
        """The command of the watched process that has this socket; empty if none has it."""
        mark = f"{VARIABLE}={self._mark}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes() and _holds(process, inode):
                    command = (process / "cmdline").read_bytes()
                    return command.replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
        return ""


def _holds(process: Path, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    return any(os.readlink(f) == wanted for f in (process / "fd").iterdir())
