"""Passes each worker's stderr through the agent, which keeps the end of it.

It alone shows why a worker was killed by a signal, or was restarted after an exception.
"""

import contextlib
import os
import selectors
import sys
import threading
from typing import NamedTuple

from elastic_pytorch.failures.last_words import MAX_STDERR_BYTES

STDERR = "ELASTIC_PYTORCH_STDERR"  # where a warm worker's stderr goes
PIPE_BYTES = 1 << 20  # what a pipe holds at most, unless root wants more


def attach() -> None:
    path = os.environ.pop(STDERR, "")
    if path:
        with contextlib.suppress(OSError):
            pipe = os.open(path, os.O_WRONLY)
            os.dup2(pipe, 2)
            os.close(pipe)


class _Pipe(NamedTuple):
    output: int
    input: int  # of workers; open here, too, so that a worker's end is no end of file
    tail: bytearray


class StderrTails:
    """A pipe for each local rank, with a name only in /proc: anything may empty /tmp."""

    def __init__(self) -> None:
        self._pipes: dict[int, _Pipe] = {}
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._unended: int | None = None  # the local rank whose last line here has no end

    def path(self, local_rank: int) -> str:
        if local_rank not in self._pipes:
            with contextlib.suppress(OSError):
                self._open(local_rank)
        pipe = self._pipes.get(local_rank)
        return "" if pipe is None else f"/proc/{os.getpid()}/fd/{pipe.input}"

    def start_round(self) -> None:
        with self._lock:
            for local_rank in self._pipes:
                self._read(local_rank).clear()

    def text(self, local_rank: int) -> str:
        with self._lock:
            return self._read(local_rank).decode(errors="replace")

    def end_line(self, local_rank: int) -> None:
        with self._lock:
            self._read(local_rank)
            if self._unended == local_rank:
                self._write(local_rank, b"\n")

    def close(self) -> None:
        with self._lock:
            for local_rank in self._pipes:
                self._read(local_rank)

    def _open(self, local_rank: int) -> None:
        output, end = os.pipe()
        os.set_blocking(output, False)
        os.fchmod(end, 0o622)  # a script without its privileges may open /dev/stderr
        with self._lock:
            self._pipes[local_rank] = _Pipe(output, end, bytearray())
        self._selector.register(output, selectors.EVENT_READ, local_rank)
        if len(self._pipes) == 1:
            threading.Thread(target=self._pass_on, name="stderr", daemon=True).start()

    def _pass_on(self) -> None:
        while True:
            for key, _ in self._selector.select():
                with self._lock:
                    self._read(key.data)

    def _read(self, local_rank: int) -> bytearray:
        """Passes on what the pipe holds, and returns the tail. The caller holds the lock.

        What a worker writes meanwhile must wait: it may write without end, and others wait, too.
        """
        pipe = self._pipes.get(local_rank)
        if pipe is None:
            return bytearray()
        with contextlib.suppress(BlockingIOError):
            data = os.read(pipe.output, PIPE_BYTES)
            pipe.tail.extend(data)
            del pipe.tail[:-MAX_STDERR_BYTES]
            self._write(local_rank, data)
        return pipe.tail

    def _write(self, local_rank: int, data: bytes) -> None:
        self._unended = None if data.endswith(b"\n") else local_rank
        with contextlib.suppress(OSError):
            sys.stderr.flush()
            while data:
                data = data[os.write(2, data) :]
