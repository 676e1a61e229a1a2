"""How the hostile tenant's programs count their acts: a growing number in a file per process."""

import os
import threading
import time
from pathlib import Path

WRITE_SECONDS = 1.0


class Tally:
    def __init__(self, act: str) -> None:
        self._path = Path(os.environ["TALLY"], f"{act}.{os.environ['POD']}.{time.time():.0f}")
        self._count, self._written_at, self._lock = 0, 0.0, threading.Lock()

    def add(self, number: int = 1) -> None:
        with self._lock:
            self._count += number
            if time.monotonic() >= self._written_at + WRITE_SECONDS:
                self._written_at = time.monotonic()
                new = self._path.with_suffix(".new")
                new.write_text(str(self._count))
                new.replace(self._path)
