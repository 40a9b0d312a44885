"""Tokenises in processes of its own, so that a card does not wait for one Python's lock.

One process with a thread for each core reaches half the speed: the threads share a memory allocator
and Python's lock. A process ends when its input does, which is when the process that started it
ends, however that happens.

Run as `python -m lakewake.embed.tokenising`, it is such a process.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from lakewake.embed.lots import Tokens, tokenise

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Cores that are left to the process itself, cores for each other one, and the least that pay.
LEFT, EACH, LEAST = 1, 1, 8
_LENGTH = struct.Struct("<Q")

Process = subprocess.Popen[bytes]


class Tokenisers:
    """Tokenises by several processes; in this one if there are few cores. Threads may share it."""

    def __init__(self, tokenizer: Tokenizer, cores: int | None = None) -> None:
        self._tokenizer = tokenizer
        cores = cores or len(os.sched_getaffinity(0))
        self.processes = (cores - LEFT) // EACH if cores >= LEAST else 0
        self._idle: queue.SimpleQueue[Process | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started, self._owner = False, os.getpid()
        self._all: list[Process] = []

    def read(self, texts: Sequence[str]) -> Tokens:
        """The tokens of these texts."""
        # A forked process must not talk to the processes of its parent.
        if not self.processes or os.getpid() != self._owner:
            return tokenise(self._tokenizer, texts)
        self._start()
        process = self._idle.get()
        try:
            found = _ask(process, texts) if process else None
        except (OSError, EOFError, pickle.UnpicklingError):
            # It was killed, or could not be started. Its share is done here from now on.
            found, process = None, None
        finally:
            self._idle.put(process)
        return found or tokenise(self._tokenizer, texts)

    def close(self) -> None:
        """End the processes."""
        for process in self._all:
            with suppress(OSError):
                process.communicate()

    def _start(self) -> None:
        with self._lock:
            if self._started:
                return
            self._started = True
            for _ in range(self.processes):
                self._idle.put(self._one())

    def _one(self) -> Process | None:
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "false"}
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            self._all.append(process)
            assert process.stdin
            _send(process.stdin, self._tokenizer.to_str())
        except OSError:
            return None
        return process


def _ask(process: Process, texts: Sequence[str]) -> Tokens:
    assert process.stdin
    assert process.stdout
    _send(process.stdin, list(texts))
    ids, lengths = _receive(process.stdout)
    return Tokens(np.frombuffer(ids, np.int32), np.frombuffer(lengths, np.int64))


def _send(stream: IO[bytes], value: object) -> None:
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return pickle.loads(content)


def main() -> None:
    """Tokenise what comes, until nothing does."""
    from tokenizers import Tokenizer

    # Whatever a library prints must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        tokenizer = Tokenizer.from_str(_receive(sys.stdin.buffer))
        while True:
            tokens = tokenise(tokenizer, _receive(sys.stdin.buffer))
            _send(answers, (tokens.ids.tobytes(), tokens.lengths.tobytes()))


if __name__ == "__main__":
    main()
