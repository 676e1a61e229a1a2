"""Writes snapshots to checkpoint folders, one at a time, in a thread of its own. Standard library only."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from elastic_pytorch import checkpoint_folder
from elastic_pytorch.checkpoint_folder import Superseded
from elastic_pytorch.log import logger, milliseconds
from elastic_pytorch.snapshot_slots import Slot, pin_newest, still_holds, unpin
from elastic_pytorch.stamp import Stamp

CHUNK_BYTES = 4 << 20


class Flush(NamedTuple):
    """A request.

    Attributes:
        name: of the snapshot; a request takes the place of an earlier one of the same name that is not begun yet.
        fd: the snapshot, to be closed when the request is done with.
        folder: where to.
        keep: how many checkpoints to keep there.
        answer: called once with the stamp that is on the disk, or with what went wrong.
    """

    name: str
    fd: int
    folder: str
    keep: int
    answer: Callable[[Stamp | None, str], None]


class Flusher:
    """The thread; it starts with the first request."""

    def __init__(self) -> None:
        self._pending: dict[str, Flush] = {}
        self._busy = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._last_trouble = ""
        self._written: dict[str, tuple[str, Stamp]] = {}

    def ask(self, flush: Flush) -> None:
        """Asks for the newest state of a snapshot to be written."""
        with self._changed:
            before = self._pending.pop(flush.name, None)
            if before is not None:
                os.close(before.fd)
            self._pending[flush.name] = flush
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drain(self, seconds: float) -> bool:
        """Waits until nothing is left to write; False: the time was not enough."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._pending and not self._busy, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._pending)
                flush = self._pending.pop(next(iter(self._pending)))
                self._busy = True
            stamp, trouble = None, ""
            try:
                stamp = self._write(flush)
                self._last_trouble = ""
            except Exception as error:  # training must not end because of it, nor must this thread
                trouble = _describe(error, flush.folder)
                if trouble != self._last_trouble:
                    logger.warning("no checkpoint: %s", trouble)
                self._last_trouble = trouble
            finally:
                os.close(flush.fd)
            flush.answer(stamp, trouble)

    def _write(self, flush: Flush) -> Stamp:
        while (slot := pin_newest(flush.fd)) is not None:
            if self._written.get(flush.name) == (flush.folder, slot.stamp):
                unpin(flush.fd)
                return slot.stamp
            since = time.monotonic()
            try:
                path = checkpoint_folder.write(flush.folder, slot.stamp, _chunks(flush.fd, slot), flush.keep)
            except _Overwritten:
                continue
            finally:
                with contextlib.suppress(OSError):
                    unpin(flush.fd)
            self._written[flush.name] = (flush.folder, slot.stamp)
            logger.debug("%s written in %s", path, milliseconds(since))
            return slot.stamp
        raise ValueError("an empty snapshot")


class _Overwritten(Exception):
    """The slot has been written to while it was read."""


def _chunks(fd: int, slot: Slot) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(CHUNK_BYTES, slot.length)))
    done = 0
    while done < slot.length:
        count = os.preadv(fd, [buffer[: slot.length - done]], slot.offset + done)
        if count == 0:
            raise ValueError("the snapshot ends too early")
        yield buffer[:count]
        done += count
    # A pin is seen by a writer in nearly every case; in the others, what has been read may be of two states.
    if not still_holds(fd, slot):
        raise _Overwritten


def _describe(error: Exception, folder: str) -> str:
    if isinstance(error, Superseded):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename or folder})"
    return f"{type(error).__name__}: {error}"
