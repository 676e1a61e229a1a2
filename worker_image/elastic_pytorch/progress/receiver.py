"""The progress of training, as the agent receives it from its workers."""

import contextlib
import json
import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from elastic_pytorch.progress.metrics import Metrics, merge_metrics, read_metrics
from elastic_pytorch.progress.report import MAX_DATAGRAM_BYTES
from elastic_pytorch.progress.work_windows import WINDOW_SECONDS, Work, WorkWindows
from elastic_pytorch.socket_folder import LOOK_SECONDS, SocketFolder

# socket(7): a struct timeval
LOOK_TIMEVAL = struct.pack("ll", *divmod(int(LOOK_SECONDS * 1_000_000), 1_000_000))
MAX_LOCAL_RANKS = 256  # in a heartbeat: the operator takes 64 KiB


@dataclass(frozen=True, slots=True)
class Progress:
    """All moments are monotonic seconds; None: no rank has reported it."""

    step: int | None = None
    first_step: int | None = None  # of the round
    total: int | None = None
    loss: float | None = None
    checkpoint_step: int | None = None
    checkpoints: int | None = None  # in the watched folder; None: no folder is watched
    started_at: float | None = None  # when all processes of the pod were started for the round
    formed_at: float | None = None  # when a process reported that its process group had formed
    metrics: Metrics = ()  # of the round
    work: Work | None = None
    saving_since: float | None = None  # when a process began to wait for its last checkpoint
    failed_saves: int = 0  # in a row
    save_error: str = ""  # of the last of them
    checkpoint_seconds: float | None = None  # to write the newest one

    def with_fields(self, fields: Mapping[str, object], now: float) -> "Progress":
        """The largest step counts, and the newest of all else; raises ValueError for bad fields."""
        step, total, checkpoint = (
            _count(fields.get(key)) for key in ("step", "total", "checkpointStep")
        )
        loss, seconds = _number(fields.get("loss")), _number(fields.get("checkpointSeconds"))
        failed_saves, save_error = _count(fields.get("failedSaves")), fields.get("saveError")
        if failed_saves is None:
            saved = checkpoint is not None and checkpoint != self.checkpoint_step
            failed_saves, save_error = (0, "") if saved else (self.failed_saves, self.save_error)
        return replace(
            self,
            step=self.step if step is None else max(step, self.step or 0),
            first_step=step if self.first_step is None else self.first_step,
            total=self.total if total is None else total,
            loss=self.loss if loss is None else loss,
            checkpoint_step=self.checkpoint_step if checkpoint is None else checkpoint,
            formed_at=now
            if self.formed_at is None and fields.get("formed") is True
            else self.formed_at,
            metrics=merge_metrics(self.metrics, read_metrics(fields.get("metrics", {}))),
            saving_since=self._saving_since(fields.get("saving"), now),
            failed_saves=failed_saves,
            save_error=save_error if isinstance(save_error, str) else "",
            checkpoint_seconds=self.checkpoint_seconds if seconds is None else seconds,
        )

    def _saving_since(self, saving: object, now: float) -> float | None:
        if not isinstance(saving, bool):
            return self.saving_since
        return (now if self.saving_since is None else self.saving_since) if saving else None

    def to_json(self, now: float = 0.0) -> dict[str, object] | None:
        if self == Progress():
            return None
        fields: dict[str, object] = {
            "step": self.step,
            "firstStep": self.first_step,
            "total": self.total,
            "loss": self.loss,
            "checkpointStep": self.checkpoint_step,
            "checkpoints": self.checkpoints,
            "startedAgeSeconds": _age(self.started_at, now),
            "formedAgeSeconds": _age(self.formed_at, now),
        }
        if self.checkpoint_seconds is not None:
            fields["checkpointSeconds"] = round(self.checkpoint_seconds, 3)
        if self.saving_since is not None:
            fields["savingSeconds"] = _age(self.saving_since, now)
        if self.metrics:
            fields["metrics"] = dict(self.metrics)
        if self.work is not None:
            fields |= self.work.to_json()
        if self.failed_saves:
            fields |= {"failedSaves": self.failed_saves, "saveError": self.save_error}
        return fields


def parse_report(datagram: bytes) -> dict[str, object]:
    if len(datagram) > MAX_DATAGRAM_BYTES:
        raise ValueError("too long")
    fields = json.loads(datagram, parse_int=float)  # an int may be too large for a float
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    return fields


def add_work(windows: WorkWindows, fields: Mapping[str, object], now: float) -> Work | None:
    """Returns the window that a report ends, if any, or raises ValueError."""
    work, step = _number(fields.get("workSeconds")), _number(fields.get("stepSeconds"))
    local_rank = _count(fields.get("localRank"))
    if work is None or step is None or local_rank is None:
        return None
    if work < 0 or step < 0 or local_rank >= MAX_LOCAL_RANKS:
        raise ValueError("not a time of a local rank")
    return windows.add(local_rank, work, step, now)


def _age(moment: float | None, now: float) -> float | None:
    return None if moment is None else round(max(0.0, now - moment), 4)


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("not a number")
    # JSON has no nan
    return float(value) if math.isfinite(value) else None


def _count(value: object) -> int | None:
    number = _number(value)
    if number is not None and not 0 <= number < 2**53:
        raise ValueError("not a count")
    return None if number is None else int(number)


class ProgressReceiver:
    """The agent's socket for reports, and for each round a thread that reads it."""

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window_seconds = window_seconds
        self._folder: SocketFolder | None = None
        with contextlib.suppress(OSError):
            self._folder = SocketFolder("report")
        # For the workers' environment; empty: none could be made.
        self.path = self._folder.path if self._folder is not None else ""
        # Called in a thread: at the first step of a round, when its group has formed, and with a
        # new count of checkpoints.
        self.on_news: Callable[[], None] = lambda: None
        self._socket: socket.socket | None = None
        self._progress = Progress()
        self._windows = WorkWindows(self._window_seconds)
        self._lock = threading.Lock()

    def start_round(self) -> None:
        """Forgets the last round's steps, and reports on their way, but not its checkpoints."""
        with self._lock:
            before = self._progress
            self._progress = Progress(
                checkpoint_step=before.checkpoint_step,
                checkpoint_seconds=before.checkpoint_seconds,
                checkpoints=before.checkpoints,
            )
            self._windows = WorkWindows(self._window_seconds)
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)  # ends the previous thread's recv
                self._socket = None
            self._listen()

    def current(self) -> Progress:
        with self._lock:
            return self._progress

    def note_checkpoints(self, count: int | None) -> None:
        with self._lock:
            self._progress = replace(self._progress, checkpoints=count)
        self.on_news()

    def note_written(self, step: int, seconds: float) -> None:
        with self._lock:
            known = replace(self._progress, failed_saves=0, save_error="")
            self._progress = replace(known, checkpoint_step=step, checkpoint_seconds=seconds)

    def note_started(self) -> None:
        with self._lock:
            self._progress = replace(self._progress, started_at=time.monotonic())

    def close(self) -> None:
        with self._lock:
            folder, self._folder = self._folder, None
        if folder is not None:
            folder.remove()

    def _listen(self) -> None:
        """The caller holds the lock."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            self._socket = self._folder.bind(socket.SOCK_DGRAM)
            # With settimeout, a recv of a socket that is shut down would ask the kernel again and
            # again until the time is over.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, LOOK_TIMEVAL)
            threading.Thread(
                target=self._receive, args=(self._socket,), name="progress", daemon=True
            ).start()

    def _listen_again_if_emptied(self) -> None:
        with self._lock:
            if self._folder is not None and self._folder.is_emptied():
                self._listen()

    def _receive(self, receiver: socket.socket) -> None:
        with receiver:
            while receiver is self._socket:
                try:
                    datagram = receiver.recv(MAX_DATAGRAM_BYTES + 1)
                except BlockingIOError:
                    self._listen_again_if_emptied()
                    continue
                with self._lock:
                    if receiver is not self._socket:
                        return
                    before = self._progress
                    with contextlib.suppress(ValueError, RecursionError):
                        now, fields = time.monotonic(), parse_report(datagram)
                        self._progress = before.with_fields(fields, now)
                        if (work := add_work(self._windows, fields, now)) is not None:
                            self._progress = replace(self._progress, work=work)
                    stepped = before.first_step is None and self._progress.first_step is not None
                    formed = before.formed_at is None and self._progress.formed_at is not None
                if stepped or formed:
                    self.on_news()
