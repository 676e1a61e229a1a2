"""Detects the checkpoints of a script by scans of the folder that it writes to.

A checkpoint of any number of files is finished when one scan finds changes and the next none. On
network storage, a scan costs a request per file. So it runs only while workers run, for a bounded
number of files, and a tenth of the time at most.
"""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable

from elastic_pytorch.log import logger
from elastic_pytorch.wakeup import Rest

SCAN_SECONDS = 0.2
MAX_ENTRIES = 10_000
MAX_LEVELS = 2  # of folders below the watched one
BEING_WRITTEN = (".tmp", ".temp", ".new", ".part", ".partial", ".incomplete", ".lock", "~")
NO_CHECKPOINT = (".log", ".jsonl", ".csv")  # written beside checkpoints all the time

# Inode, bytes, time of change in nanoseconds.
Signature = tuple[int, int, int]


class CheckpointCount:
    def __init__(self) -> None:
        self.count = 0  # finished since the first scan
        self._known: dict[str, Signature] = {}
        self._changing = False

    def begin(self, files: dict[str, Signature]) -> None:
        """Takes all files as known: workers that stopped did not finish what they wrote."""
        self._known = files
        self._changing = False

    def add_scan(self, files: dict[str, Signature]) -> bool:
        changed = any(self._known.get(path) != signature for path, signature in files.items())
        # Beyond the bound, one scan may find files that the next does not: they stay known.
        self._known = {**self._known, **files} if len(self._known) <= MAX_ENTRIES else files
        finished = self._changing and not changed
        self._changing = changed
        self.count += finished
        return finished


def find_files(folder: str, most: int = MAX_ENTRIES) -> dict[str, Signature]:
    """Returns the files below a folder that may belong to a finished checkpoint.

    Of more entries than `most`, the folders that have changed last count.
    """
    found: dict[str, Signature] = {}
    level = [folder]
    for depth in range(1 + MAX_LEVELS):
        below: list[tuple[int, str]] = []
        for place in level:
            try:
                with os.scandir(place) as scan:
                    entries = list(itertools.islice(scan, most))
            except OSError as error:
                if depth == 0 and not isinstance(error, FileNotFoundError):
                    raise
                continue
            most -= len(entries)
            for entry in entries:
                with contextlib.suppress(OSError):  # it has just been removed
                    if not _may_be_finished(entry):
                        continue
                    stat = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        below.append((stat.st_mtime_ns, entry.path))
                    elif entry.is_file(follow_symlinks=False) and stat.st_size:
                        # An empty file is about to be written.
                        found[entry.path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        level = [path for _, path in sorted(below, reverse=True)]
    return found


def _may_be_finished(entry: os.DirEntry[str]) -> bool:
    return not (
        entry.name.startswith((".", "events.out."))
        or entry.name.endswith((*BEING_WRITTEN, *NO_CHECKPOINT))
        or entry.is_symlink()
    )


class CheckpointWatch:
    """A thread that watches a folder, which need not exist yet, while workers run.

    `running` returns the round whose workers run here; 0: none do. The thread calls `report` with
    each new count; None: it cannot read the folder.
    """

    def __init__(
        self, folder: str, running: Callable[[], int], report: Callable[[int | None], None]
    ) -> None:
        self._folder = folder
        self._running = running
        self._report = report
        self._checkpoints = CheckpointCount()
        self._rest = Rest()
        self._round = 0
        self._readable = True

    def start(self) -> None:
        self._report(0)
        threading.Thread(target=self._watch, name="checkpoints", daemon=True).start()

    def _watch(self) -> None:
        while True:
            began = time.monotonic()
            number = self._running()
            rest = 0.0
            if number:
                self._scan(number)
                rest = self._rest.after(time.monotonic() - began)
            self._round = number
            time.sleep(max(SCAN_SECONDS, rest))

    def _scan(self, number: int) -> None:
        try:
            files = find_files(self._folder)
        except (OSError, ValueError) as error:  # ValueError: not a path
            if self._readable:
                logger.warning("cannot watch for checkpoints: %s", error)
                self._report(None)
            self._readable = False
            return
        if number != self._round or not self._readable:
            self._checkpoints.begin(files)
            if not self._readable:
                self._report(self._checkpoints.count)
            self._readable = True
        elif self._checkpoints.add_scan(files):
            self._report(self._checkpoints.count)
