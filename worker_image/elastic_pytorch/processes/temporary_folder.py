"""The folder for the sockets and error files of workers. Scripts and cleaners empty it, too."""

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from elastic_pytorch.log import logger

VARIABLES = ("TMPDIR", "TEMP", "TMP")  # in the order of Python's tempfile
TRIED_BYTES = 64 * 1024  # more than an error file: less may still fit on a full disk
# As long as the longest name there, multiprocessing's listener in its folder. A socket's path has
# 107 characters at most.
SOCKET_NAME = "listener-12345678"


class TemporaryFolderError(Exception):
    pass


def candidates(environ: Mapping[str, str], working_directory: str) -> list[str]:
    """Python's own candidates in their order, with shared memory before the last.

    The working directory comes last, because it may be a volume that all workers share.
    """
    named = [os.path.abspath(environ[name]) for name in VARIABLES if environ.get(name)]  # noqa: PTH100 - links stay
    return list(dict.fromkeys([*named, "/tmp", "/var/tmp", "/dev/shm", working_directory]))


def choose_temporary_folder(folders: Iterable[str]) -> str:
    """Has tempfile use the first folder that can hold files and sockets.

    Scripts look for a folder themselves. They get TMPDIR only where Python would find none.
    """
    refused = []
    for folder in folders:
        try:
            _try(folder)
        except OSError as error:
            refused.append(f"{folder} ({error.strerror or error})")
            continue
        try:
            tempfile.gettempdir()
        except FileNotFoundError:
            os.environ["TMPDIR"] = folder
        tempfile.tempdir = folder
        if refused:
            logger.warning(
                "the agent's temporary files are in %s, as these cannot hold them: %s",
                folder,
                ", ".join(refused),
            )
        return folder
    raise TemporaryFolderError(
        "no worker can be started, as no folder can hold temporary files and sockets: "
        "set TMPDIR to a folder that can, such as the mount of an emptyDir; tried: "
        f"{', '.join(refused)}"
    )


def make_temporary_folder_again() -> None:
    with contextlib.suppress(OSError):
        Path(tempfile.gettempdir()).mkdir(parents=True, exist_ok=True)


def _try(folder: str) -> None:
    with tempfile.TemporaryDirectory(
        prefix="elastic_pytorch_", dir=folder, ignore_cleanup_errors=True
    ) as made:
        with Path(made, "file").open("wb", buffering=0) as file:
            left = memoryview(bytes(TRIED_BYTES))
            while left:
                left = left[file.write(left) :]
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
            listener.bind(str(Path(made, SOCKET_NAME)))
