"""Accepts connections in one of several workers, so that all of them have about as many.

All workers wait at the same socket. The one that looks first would take every connection that is
waiting, and clients keep connections for long: one worker would answer everybody while the others
idle. So a worker takes one at a time, and leaves it to others while it has more than they have.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
from collections.abc import Callable

from lakewake.serve.shared import Shared

#: Seconds between two looks of a worker that leaves a connection to others, and how often it does.
#: Then it takes the connection after all: the others may be busy, or stopped.
PAUSE, LOOKS = 0.001, 20
#: No file or no memory is left for a connection, and the seconds until the next try.
FULL, FULL_PAUSE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM), 1.0


class Acceptor:
    """Takes connections from a socket that other processes listen on too.

    Args:
        make: makes the protocol of a connection.
        shared: where all workers note how many connections they have.
        connections: how many this worker has.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], asyncio.Protocol],
        shared: Shared,
        connections: Callable[[], int],
    ) -> None:
        self._listener, self._make = listener, make
        self._shared, self._connections = shared, connections
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._later: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self.note()
        self._wait()

    def note(self) -> None:
        """Let the others know how many connections this worker has."""
        self._shared.set_connections(self._connections() + len(self._beginning))

    def close(self) -> None:
        """Accept no more."""
        if self._later is not None:
            self._later.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""

    def _wait(self) -> None:
        self._later = None
        self._loop.add_reader(self._listener, self._look, 0)

    def _look(self, looks: int) -> None:
        """Take the connection that waits, or leave it to others for now."""
        self._later = None
        self.note()
        if looks < LOOKS and not self._shared.has_fewest_connections:
            if looks == 0:
                self._loop.remove_reader(self._listener)
            self._later = self._loop.call_later(PAUSE, self._look_again, looks + 1)
            return
        self._wait()
        self._take()

    def _look_again(self, looks: int) -> None:
        if is_waiting(self._listener):
            self._look(looks)
        else:
            self._wait()

    def _take(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            # If not, another worker was faster, or the client left.
            if error.errno in FULL:
                self._loop.remove_reader(self._listener)
                self._later = self._loop.call_later(FULL_PAUSE, self._wait)
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._begin(connection))
        self._beginning.add(task)
        task.add_done_callback(self._begun)
        self.note()

    async def _begin(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, connection)
        except OSError:
            connection.close()

    def _begun(self, task: asyncio.Task[None]) -> None:
        self._beginning.discard(task)
        self.note()


def is_waiting(listener: socket.socket) -> bool:
    """Whether a connection waits to be accepted."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return bool(poll.poll(0))
