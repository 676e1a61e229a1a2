"""Writes snapshots to checkpoint folders in a thread, one at a time. Standard library only.

After each write it rests for nine times as long (see `rest`), unless a request is urgent: before a
worker leaves, and at the end of training.
"""

import contextlib
import functools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from elastic_pytorch.log import logger, milliseconds
from elastic_pytorch.memory.slots import Slot, pin_newest, still_holds, unpin
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_folder
from elastic_pytorch.storage.checkpoint_folder import Superseded
from elastic_pytorch.storage.places import place_at
from elastic_pytorch.storage.retention import Keep
from elastic_pytorch.wakeup import Rest

CHUNK_BYTES = 4 << 20
PLACES = 8  # that are kept: those in object storage have connections and credentials
MAX_TROUBLE = 1000  # characters, as it travels in a message


class Flush(NamedTuple):
    # Of the snapshot. A request replaces an earlier one of the same name that has not begun.
    name: str
    fd: int  # of the snapshot; closed after the request
    folder: str  # a path or a URL
    keep: Keep
    # Called once with the version on the disk, or with what went wrong.
    answer: Callable[[StateVersion | None, str], None]
    now: bool = False  # without the rest before it


class CheckpointWriter:
    """`on_written` gets the step of each new version on the disk, and its seconds."""

    def __init__(
        self,
        on_written: Callable[[int, float], None] = lambda _step, _seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_written = on_written
        self._clock = clock
        self._rested_at = clock()
        self._rests: defaultdict[str, Rest] = defaultdict(Rest)  # by snapshot
        self._drains = 0
        self._pending: dict[str, Flush] = {}
        self._busy = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._last_trouble = ""
        self._written: dict[str, tuple[str, StateVersion, int]] = {}
        self._place_at = functools.lru_cache(PLACES)(place_at)

    def ask(self, flush: Flush) -> None:
        with self._changed:
            before = self._pending.pop(flush.name, None)
            if before is not None:
                os.close(before.fd)
                flush = flush._replace(now=flush.now or before.now)
            self._pending[flush.name] = flush
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="checkpoint writer", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def drain(self, seconds: float) -> bool:
        """Waits until all is written, without rests; False: the time was not enough."""
        with self._changed:
            self._drains += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: not self._pending and not self._busy, seconds)
            finally:
                self._drains -= 1

    def _take(self) -> Flush:
        """Waits for the next request. The caller holds the lock."""
        while True:
            for flush in self._pending.values():
                if flush.now or self._drains or self._clock() >= self._rested_at:
                    return self._pending.pop(flush.name)
            self._changed.wait(self._rested_at - self._clock() if self._pending else None)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                flush = self._take()
                self._busy = True
            version, trouble, before = None, "", self._written.get(flush.name)
            begun = self._clock()
            try:
                version = self._write(flush)
                self._last_trouble = ""
            except Exception as error:  # neither training nor this thread may end because of it
                trouble = _describe(error, flush.folder)[:MAX_TROUBLE]
                if trouble != self._last_trouble:
                    logger.warning("no checkpoint: %s", trouble)
                self._last_trouble = trouble
            finally:
                os.close(flush.fd)
            if version is None or self._written[flush.name] != before:  # otherwise it was there
                ended, rest = self._clock(), self._rests[flush.name]
                after = rest.after_failure if version is None else rest.after
                self._rested_at = max(self._rested_at, ended + after(ended - begun))
                if version is not None:
                    self._on_written(version.step, ended - begun)
            flush.answer(version, trouble)

    def _write(self, flush: Flush) -> StateVersion:
        while (slot := pin_newest(flush.fd)) is not None:
            # With its memory: a training that begins again may come to the same version.
            known = flush.folder, slot.version, os.fstat(flush.fd).st_ino
            if self._written.get(flush.name) == known:
                unpin(flush.fd)
                return slot.version
            since = time.monotonic()
            try:
                chunks = _chunks(flush.fd, slot)
                path = checkpoint_folder.write(
                    self._place_at(flush.folder), slot.version, chunks, flush.keep, slot.length
                )
            except _Overwritten:
                continue
            finally:
                with contextlib.suppress(OSError):
                    unpin(flush.fd)
            self._written[flush.name] = known
            logger.debug("%s written in %s", path, milliseconds(since))
            return slot.version
        raise ValueError("an empty snapshot")


class _Overwritten(Exception):
    """The slot was written to while it was read."""


def _chunks(fd: int, slot: Slot) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(CHUNK_BYTES, slot.length)))
    done = 0
    while done < slot.length:
        count = os.preadv(fd, [buffer[: slot.length - done]], slot.offset + done)
        if count == 0:
            raise ValueError("the snapshot ends too early")
        yield buffer[:count]
        done += count
    # Nearly always the committing process sees the pin. If not, the bytes may be of two states.
    if not still_holds(fd, slot):
        raise _Overwritten


def _describe(error: Exception, folder: str) -> str:
    if isinstance(error, Superseded):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename or folder})"
    return f"{type(error).__name__}: {error}"
