"""The folder that torch and multiprocessing need to start workers. It is not the agent's alone: scripts and cleaners empty it."""

import contextlib
import os
import tempfile
from pathlib import Path


class TemporaryFolderError(Exception):
    """Workers cannot be started, as the temporary folder is full or cannot be used. The message says which, and why."""


def find_temporary_folder() -> None:
    """Provides a temporary folder: with a read-only root there may be no /tmp."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        if Path("/dev/shm").is_dir():
            os.environ["TMPDIR"] = tempfile.tempdir = "/dev/shm"


def make_temporary_folder_again() -> None:
    """Makes the temporary folder again if it has been removed and that is possible."""
    with contextlib.suppress(OSError):
        Path(tempfile.gettempdir()).mkdir(parents=True, exist_ok=True)


def is_of_temporary_folder(error: OSError, folder: str, program: str) -> bool:
    """Whether the start of workers has failed for the temporary folder, and not for what the user wants to run.

    Args:
        error: of the start.
        folder: the temporary one.
        program: what each worker was to execute; empty if workers are forked.
    """
    if error.filename is None:  # a socket's connect names no path; multiprocessing's lie in the folder
        return isinstance(error, FileNotFoundError | ConnectionRefusedError)
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    return path != program and Path(path).is_relative_to(folder)
