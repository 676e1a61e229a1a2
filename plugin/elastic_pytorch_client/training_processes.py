"""Prints where the main thread of each training process is, in the process's own container.

`kubectl epj stacks` sends this file to the container's Python, so it needs only the standard
library of Python 3.10 or newer.

On a signal, a training process writes its main thread's Python stack into the memory file by which
the agent checks its handler (elastic_pytorch.stopping.answers). Forks of a script inherit the file,
but then the parent has it, too.
"""

import contextlib
import ctypes
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

WORKER = "ELASTIC_PYTORCH_WORKER"
MEMORY_NAME = "elastic-pytorch-stop"
STACK_SIGNAL = 11  # after SIGRTMIN, which macOS lacks
STACK_HEAD, ANSWER_HEAD = b"Stack (most recent call first):", b"Python runs; the handler is "
STACK_SECONDS = 5.0
TGKILL = {"x86_64": 234, "aarch64": 131}


class Process(NamedTuple):
    parent: int  # 0: outside of the container
    marked: bool  # it has the memory file of training processes open


def container_command() -> list[str]:
    return ["python3", "-c", Path(__file__).read_text()]


def training_processes(processes: dict[int, Process]) -> list[int]:
    marked = {pid for pid, process in processes.items() if process.marked}
    return sorted(pid for pid in marked if processes[pid].parent not in marked)


def read_processes() -> dict[int, Process]:
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or not _is_of_this_worker(folder):
            continue
        try:
            # proc(5): `pid (name) state parent ...`, with any name
            stat = (folder / "stat").read_text(errors="replace")
            state, parent = stat.rpartition(")")[2].split()[:2]
            marked = any(_is_memory(link) for link in (folder / "fd").iterdir())
        except (OSError, ValueError):  # ended
            continue
        if state not in ("Z", "X"):
            found[int(folder.name)] = Process(int(parent), marked)
    return found


def _is_of_this_worker(process: Path) -> bool:
    """Whether a process is known to have this worker's environment."""
    if not os.environ.get(WORKER):
        return False
    wanted = f"{WORKER}={os.environ[WORKER]}".encode()
    try:
        return wanted in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def read_stacks(pids: Iterable[int]) -> dict[int, str]:
    """The stack of each process's main thread, innermost call first; empty: it came too late."""
    files = {pid: file for pid in pids if (file := _memory_of(pid)) is not None}
    before = {pid: os.fstat(file).st_size for pid, file in files.items()}
    stacks = dict.fromkeys(pids, "")
    for pid in files:
        for _ in range(2):  # the first stack is complete when the second one begins
            with contextlib.suppress(OSError):  # just ended
                _signal_main_thread(pid, signal.SIGRTMIN + STACK_SIGNAL)
    until = time.monotonic() + STACK_SECONDS
    while files and time.monotonic() < until:
        time.sleep(0.01)
        for pid, file in list(files.items()):
            size = os.fstat(file).st_size - before[pid]
            written = os.pread(file, size, before[pid]).split(STACK_HEAD)
            if len(written) > 2:
                stack = written[1].partition(ANSWER_HEAD)[0]
                stacks[pid] = stack.decode(errors="replace").strip("\n")
                os.close(files.pop(pid))
    return stacks


def _signal_main_thread(pid: int, number: int) -> None:
    """Signals the main thread: a process's next signal might go to another one meanwhile."""
    call = TGKILL.get(platform.machine())
    if call is None:
        os.kill(pid, number)
    else:
        ctypes.CDLL(None).syscall(call, pid, pid, number)


def _memory_of(pid: int) -> int | None:
    """Opens a process's memory file; None if the process does not expect the deadly signal."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        caught = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt:"))
        expected = caught >> (signal.SIGRTMIN + STACK_SIGNAL - 1) & 1
        for link in Path(f"/proc/{pid}/fd").iterdir():
            if _is_memory(link) and expected:
                return os.open(link, os.O_RDONLY)
    return None


def _is_memory(link: Path) -> bool:
    return MEMORY_NAME in str(link.readlink())


def main() -> int:
    found = training_processes(read_processes())
    if not found:
        print("no training process was found", file=sys.stderr)
        return 1
    print(json.dumps(read_stacks(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
