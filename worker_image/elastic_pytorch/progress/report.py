"""A script's reports of its progress: datagrams on a unix socket of the agent."""

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from elastic_pytorch.progress.metrics import read_metrics

REPORT_SOCKET = "ELASTIC_PYTORCH_REPORT_SOCKET"
MAX_DATAGRAM_BYTES = 4096
MAX_ERROR = 200  # characters, which take up to four bytes each

_sender: tuple[int, socket.socket] | None = None  # with its process's id


def report(
    *,
    step: float | None = None,
    total: float | None = None,
    loss: float | None = None,
    checkpoint_step: float | None = None,
    work_seconds: float | None = None,
    step_seconds: float | None = None,
    metrics: Mapping[str, float] | None = None,
) -> None:
    """Reports the progress of training to the operator, from any rank.

    It takes microseconds, never blocks, and sends nothing without an agent of elastic-pytorch. A
    number may be anything that float() takes; for a tensor on a GPU, the call waits for the GPU.

    Args:
        step: the step just finished. The largest of all ranks counts.
        total: the step at which training will be done.
        loss: the newest loss.
        checkpoint_step: the step of the newest checkpoint from which training could continue.
        work_seconds: how long this rank has worked in a step, without its waits for other ranks. A
            `WorkTimer` measures and reports this and `step_seconds`.
        step_seconds: how long a step takes, from one to the next.
        metrics: other numbers by name, 16 at most in a job, such as `{"accuracy": 0.93}`. A name
            has 1 to 63 letters, digits, and any of `_ . / @ -` after the first.

    Raises:
        ValueError: `metrics` has more than 16 entries, another name, or a value that is no number.
            NaN and infinity are left out.
    """
    named = {} if metrics is None else read_metrics(metrics)
    # A report is optional: no error in it may end the training.
    with contextlib.suppress(Exception):
        if not has_agent():
            return
        values = {"step": step, "total": total, "loss": loss, "checkpointStep": checkpoint_step}
        values |= {"workSeconds": work_seconds, "stepSeconds": step_seconds}
        given: dict[str, Any] = {
            key: float(value) for key, value in values.items() if value is not None
        }
        if named:
            given["metrics"] = named
        if work_seconds is not None:
            given["localRank"] = int(os.environ.get("LOCAL_RANK", "0"))
        _send(given)


def report_group_formed() -> None:
    _send({"formed": True})


def report_failed_saves(count: int, error: str) -> None:
    """Reports failed saves in a row, until a report of another `checkpoint_step` ends them."""
    _send({"failedSaves": count, "saveError": error[:MAX_ERROR]})


def report_written(step: int, seconds: float) -> None:
    _send({"checkpointStep": step, "checkpointSeconds": seconds})


def report_saving(saving: bool) -> None:
    """Reports whether this process waits for its last checkpoint; the first report counts."""
    _send({"saving": saving})


def has_agent() -> bool:
    """Whether this process is a worker of an operator's job."""
    return bool(os.environ.get(REPORT_SOCKET))


def _send(fields: dict[str, Any]) -> None:
    """Never raises; does nothing without an agent."""
    with contextlib.suppress(Exception):
        if path := os.environ.get(REPORT_SOCKET):
            _socket().sendto(json.dumps(fields, ensure_ascii=False).encode(errors="replace"), path)


def _socket() -> socket.socket:
    global _sender  # noqa: PLW0603 - one socket for each process
    if _sender is None or _sender[0] != os.getpid():
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sender.setblocking(False)
        _sender = (os.getpid(), sender)
    return _sender[1]
