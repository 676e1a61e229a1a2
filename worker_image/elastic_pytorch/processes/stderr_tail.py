"""Passes each worker's stderr through the agent, which keeps the end of it.

It alone shows why a worker was killed by a signal, or was restarted after an exception.
"""

import contextlib
import os
import selectors
import sys
import threading

from elastic_pytorch.failures.last_words import MAX_STDERR_BYTES

STDERR = "ELASTIC_PYTORCH_STDERR"  # where a warm worker's stderr goes
CHUNK_BYTES = 64 * 1024  # a pipe's capacity


def attach() -> None:
    path = os.environ.pop(STDERR, "")
    if path:
        with contextlib.suppress(OSError):
            pipe = os.open(path, os.O_WRONLY)
            os.dup2(pipe, 2)
            os.close(pipe)


class StderrTails:
    """A pipe for each local rank, with a name only in /proc: anything may empty /tmp."""

    def __init__(self) -> None:
        self._pipes: dict[int, int] = {}
        self._ends: dict[int, int] = {}  # of workers
        self._tails: dict[int, bytearray] = {}
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._unended: int | None = None  # the local rank whose last line here has no end

    def path(self, local_rank: int) -> str:
        if local_rank not in self._pipes:
            with contextlib.suppress(OSError):
                self._open(local_rank)
        return (
            f"/proc/{os.getpid()}/fd/{self._ends[local_rank]}" if local_rank in self._pipes else ""
        )

    def start_round(self) -> None:
        with self._lock:
            for local_rank in self._tails:
                self._read(local_rank)
                self._tails[local_rank].clear()

    def text(self, local_rank: int) -> str:
        with self._lock:
            if local_rank not in self._pipes:
                return ""
            self._read(local_rank)
            return self._tails[local_rank].decode(errors="replace")

    def end_line(self, local_rank: int) -> None:
        with self._lock:
            if local_rank in self._pipes:
                self._read(local_rank)
            if self._unended == local_rank:
                self._write(local_rank, b"\n")

    def close(self) -> None:
        with self._lock:
            for local_rank in self._pipes:
                self._read(local_rank)

    def _open(self, local_rank: int) -> None:
        # The other end stays open, so that a worker's end is no end of file.
        pipe, end = os.pipe()
        os.set_blocking(pipe, False)
        os.fchmod(end, 0o622)  # a script without its privileges may open /dev/stderr
        with self._lock:
            self._ends[local_rank] = end
            self._tails[local_rank] = bytearray()
            self._pipes[local_rank] = pipe
        self._selector.register(pipe, selectors.EVENT_READ, local_rank)
        if len(self._pipes) == 1:
            threading.Thread(target=self._pass_on, name="stderr", daemon=True).start()

    def _pass_on(self) -> None:
        while True:
            for key, _ in self._selector.select():
                with self._lock:
                    self._read(key.data)

    def _read(self, local_rank: int) -> None:
        """The caller holds the lock."""
        tail = self._tails[local_rank]
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._pipes[local_rank], CHUNK_BYTES):
                tail += data
                del tail[:-MAX_STDERR_BYTES]
                self._write(local_rank, data)
                if len(data) < CHUNK_BYTES:
                    return

    def _write(self, local_rank: int, data: bytes) -> None:
        self._unended = None if data.endswith(b"\n") else local_rank
        with contextlib.suppress(OSError):
            sys.stderr.flush()
            while data:
                data = data[os.write(2, data) :]
