"""Kills a training process of the container that it runs in, with SIGKILL, and prints its process id.

`kubectl epj drill` sends this file to the container's own Python as it is. So it needs nothing but the standard library,
of Python 3.10 or newer.

A training process has a memory file open, by which the agent finds out whether the process can still run its handler
(elastic_pytorch.stopping.answers). What a script forks itself has it, too, but so has its parent then.
"""

import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

WORKER = "ELASTIC_PYTORCH_WORKER"
MEMORY_NAME = "elastic-pytorch-stop"


class Process(NamedTuple):
    """A process, as /proc has it.

    Attributes:
        parent: its id; 0: outside of the container.
        marked: whether it has the memory file of training processes open.
    """

    parent: int
    marked: bool


def training_processes(processes: dict[int, Process]) -> list[int]:
    """Returns the ids of the training processes, the oldest first.

    Args:
        processes: those of this worker, by their ids. The containers of a pod may share their processes with others.
    """
    marked = {pid for pid, process in processes.items() if process.marked}
    return sorted(pid for pid in marked if processes[pid].parent not in marked)


def read_processes() -> dict[int, Process]:
    """Returns all processes of this worker that have not ended."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or not _is_of_this_worker(folder):
            continue
        try:
            # proc(5): `pid (name) state parent ...`, where the name may hold anything
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            marked = any(MEMORY_NAME in os.readlink(link) for link in (folder / "fd").iterdir())  # noqa: PTH115
        except (OSError, ValueError):  # it has ended
            continue
        if state not in ("Z", "X"):
            found[int(folder.name)] = Process(int(parent), marked)
    return found


def _is_of_this_worker(process: Path) -> bool:
    """Whether a process is known to have this worker's environment. One that cannot be read is none of the worker's."""
    if not os.environ.get(WORKER):
        return False
    wanted = f"{WORKER}={os.environ[WORKER]}".encode()
    try:
        return wanted in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def main() -> int:
    """Kills the newest training process. Returns the exit code."""
    found = training_processes(read_processes())
    if not found:
        print("no training process was found", file=sys.stderr)
        return 1
    os.kill(found[-1], signal.SIGKILL)
    print(found[-1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
