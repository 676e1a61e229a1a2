"""Where a process keeps its checkpoints, so that `kubectl epj checkpoints` can list them from inside of the pod.

A memory file for each folder says so, which a command in the same container finds in /proc, and which ends with the process.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

ANNOUNCEMENT = "elastic-pytorch-checkpoints"  # the name of the files, which the command line's training_processes.py has, too

_announced: dict[str, int] = {}


def announce(folder: str) -> None:
    """Announces a folder with checkpoints, and how to run this library's Python. Does nothing on systems without memory files.

    Args:
        folder: its absolute path, or its URL; empty: there is none.
    """
    if not folder or not hasattr(os, "memfd_create"):
        return
    told = {"folder": folder, "python": sys.executable, "packages": str(Path(__file__).absolute().parents[2])}
    with contextlib.suppress(OSError):  # too many open files are the script's to meet
        file = os.memfd_create(ANNOUNCEMENT)
        os.write(file, json.dumps(told).encode())
        withdraw(folder)
        _announced[folder] = file


def withdraw(folder: str) -> None:
    """Ends the announcement of a folder; does nothing if there is none."""
    if (file := _announced.pop(folder, None)) is not None:
        os.close(file)
