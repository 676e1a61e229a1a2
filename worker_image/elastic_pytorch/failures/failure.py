"""Describes a failed worker, and writes the pod's termination message."""

import contextlib
import json
import os
import re
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elastic_pytorch.failures import last_words
from elastic_pytorch.failures.last_words import DEVICE_FAULT, find_fault

MAX_TRACEBACK_BYTES = 2048
MAX_MESSAGE_BYTES = 1024
MAX_TERMINATION_BYTES = 4096  # Kubernetes cuts what is longer
MAX_ERROR_FILE_BYTES = 1 << 20
# Of the message in a longer error file, where one character may take twelve.
MAX_CUT_CHARACTERS = 16 * 1024
# In torch's format, or as plain text.
_MESSAGE = re.compile(r'\s*\{\s*"message":\s*(?:\{\s*"message":\s*)?"')
_CHARACTERS = re.compile(r'(?:[^"\\\x00-\x1f]|\\(?:[^u]|u[0-9a-fA-F]{4}))*')  # of a text in JSON
OUT_OF_MEMORY = "OutOfMemory"  # the exception of a worker that the kernel's OOM killer ends


@dataclass(frozen=True, slots=True)
class Failure:
    local_rank: int
    rank: int  # in the round
    pid: int
    exit_code: int  # negative: killed by that signal
    # When its error file was written, else when the agent noticed, by `time.monotonic()`.
    observed: float
    exception: str = ""
    message: str = ""
    traceback: str = ""  # its last 2 KiB

    @property
    def signal(self) -> str:
        """The signal that killed the worker; empty: none."""
        return signal_name(-self.exit_code) if self.exit_code < 0 else ""

    def to_json(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "pid": self.pid,
            "exitCode": self.exit_code,
            "signal": self.signal,
            "ageSeconds": round(max(0.0, time.monotonic() - self.observed), 3),
            "exception": self.exception,
            "message": self.message,
            "traceback": self.traceback,
        }

    def summary(self) -> str:
        first = self.message.splitlines()[0] if self.message else ""
        how = self.signal or f"exit code {self.exit_code}"
        return f"rank {self.rank} (local rank {self.local_rank}, pid {self.pid}, {how}): {first}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe(
    *,
    local_rank: int,
    rank: int,
    pid: int,
    exit_code: int,
    error_file: str = "",
    stderr_file: str = "",
    stderr: str = "",
    oom_killed: bool = False,
) -> Failure:
    if exit_code == -signal.SIGKILL and oom_killed:
        text = (
            "the kernel killed it: the container is out of memory; "
            "raise its memory limit or make it use less"
        )
        return Failure(local_rank, rank, pid, exit_code, time.monotonic(), OUT_OF_MEMORY, text)
    observed = time.monotonic()
    message, traceback = _read_error_file(error_file)
    if message:
        observed -= _age_of_file(error_file)
    else:
        words = last_words.without_noise(stderr or last_words.read_end(stderr_file))
        message = _describe_exit(exit_code, words)
        traceback = _head(last_words.crash(words), MAX_TRACEBACK_BYTES) or words
    exception = last_words.EXCEPTION.match(message) if traceback else None
    known = exception[1] if exception and exit_code > 0 else ""
    failure = bounded(
        Failure(local_rank, rank, pid, exit_code, observed, known, message, traceback)
    )
    if fault := find_fault(f"{failure.message}\n{failure.traceback}"):
        before = f"a device has failed ({fault}): "
        message = before + _head(failure.message, MAX_MESSAGE_BYTES - len(before))
        return replace(failure, exception=DEVICE_FAULT, message=message)
    return failure


def bounded(failure: Failure) -> Failure:
    traceback = _tail(failure.traceback, MAX_TRACEBACK_BYTES)
    return replace(failure, message=_head(failure.message, MAX_MESSAGE_BYTES), traceback=traceback)


def write_termination_message(message: str, traceback: str = "") -> None:
    """Does nothing if there is no such file."""
    path = os.environ.get("ELASTIC_PYTORCH_TERMINATION_LOG", "/dev/termination-log")
    head = _head(message.strip(), MAX_TERMINATION_BYTES // 2)
    room = MAX_TERMINATION_BYTES - len(head.encode()) - 1
    text = f"{head}\n{_tail(traceback.strip(), room)}".strip()
    # The file is a mount: it can be written, but not replaced. Outside a pod, none is created.
    with contextlib.suppress(OSError), Path(path).open("r+", encoding="utf-8") as file:
        file.truncate()
        file.write(text)


def _describe_exit(exit_code: int, words: str) -> str:
    if exit_code < 0:
        killed = f"killed by {signal_name(-exit_code)}{last_words.place_of_crash(words)}"
        why = last_words.reason(words) if exit_code == -signal.SIGABRT else ""
        return f"{killed}\n{why}".strip()
    if exit_code == 1 and (raised := last_words.exception(words)):
        return raised
    lines = words.strip().splitlines()
    last = f"; its last line on stderr: {lines[-1].rstrip()}" if lines else ""
    return f"exited with code {exit_code}{last}"


def _read_error_file(path: str) -> tuple[str, str]:
    """Returns the message and the traceback; empty if the file is missing or unreadable.

    A script may write the file, so it can hold anything. One that is too long has only a message.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_ERROR_FILE_BYTES)
            if file.read(1):
                words = _first_words(text.decode(errors="replace"))
                return words, words
            fields = json.loads(text)
        message = fields["message"]
        if isinstance(message, dict):
            extra = message.get("extraInfo")
            stack = extra.get("py_callstack", "") if isinstance(extra, dict) else ""
            return str(message["message"]), str(stack)
        return str(message), ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "", ""


def _first_words(text: str) -> str:
    """The beginning of the message in an error file that is cut off; empty if it has none."""
    begin = _MESSAGE.match(text)
    if begin is None:
        return ""
    message = text[begin.end() : begin.end() + MAX_CUT_CHARACTERS]
    whole = _CHARACTERS.match(message)
    assert whole is not None  # it matches the empty text, too
    return str(json.loads(f'"{whole[0]}"'))


def _age_of_file(path: str) -> float:
    try:
        return max(0.0, time.time() - Path(path).stat().st_mtime)
    except OSError:
        return 0.0


def _head(text: str, size: int) -> str:
    """The first `size` bytes, without half a character at the end."""
    return text.encode(errors="replace")[:size].decode(errors="ignore")


def _tail(text: str, size: int) -> str:
    """The last `size` bytes, without half a character at the start."""
    return text.encode(errors="replace")[-size:].decode(errors="ignore") if size > 0 else ""
