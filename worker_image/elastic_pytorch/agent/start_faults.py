"""Why a start of workers has failed: the user's program, the log folder, the pod or its node."""

import errno
import os
import signal
from pathlib import Path

from elastic_pytorch.agent.settings import SettingsError
from elastic_pytorch.failures.failure import write_termination_message
from elastic_pytorch.log import logger

# The exit code of a pod that must be replaced. It is never the job's failure.
OF_NO_MORE_USE = 128 + signal.SIGKILL
LACKS = {
    errno.EAGAIN: "the pod or its node has reached its limit of processes and threads (pids)",
    errno.ENOMEM: "the pod or its node has no memory left",
    errno.EMFILE: "the agent has reached its limit of open files (ulimit -n)",
    errno.ENFILE: "the node has reached its limit of open files",
}
NO_THREAD = "can't start new thread"  # Python's words for EAGAIN


class CannotStartError(Exception):
    """The pod cannot start workers, and must be replaced. The reason is not the script's."""


def end_of_no_more_use(reason: str) -> int:
    logger.error("end: %s", reason)
    write_termination_message(reason)
    return OF_NO_MORE_USE


def lack(error: BaseException) -> str:
    if isinstance(error, RuntimeError) and NO_THREAD in str(error):
        return LACKS[errno.EAGAIN]
    if isinstance(error, MemoryError):
        return LACKS[errno.ENOMEM]
    return LACKS.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def start_fault(
    error: Exception, *, temporary: str, log_dir: str, program: str
) -> CannotStartError | SettingsError | None:
    """Returns None if the user's program is at fault.

    `program` is empty if workers are forked. The log folder may be in the temporary one.
    """
    problem = f"no worker can be started: {error}"
    if lacking := lack(error):
        return CannotStartError(f"{problem}; {lacking}")
    if isinstance(error, EOFError | BrokenPipeError | ConnectionResetError):
        return CannotStartError(f"{problem}; the process that forks workers has ended")
    if not isinstance(error, OSError):
        return None
    of_folder = CannotStartError(f"{problem}; the temporary folder is {temporary}")
    # Connecting a socket names no path, and multiprocessing's sockets are in the temporary folder.
    if error.filename is None:
        connects = isinstance(error, FileNotFoundError | ConnectionRefusedError)
        return of_folder if connects or error.errno == errno.ENOSPC else None
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    if path == program:
        return None
    if Path(path).is_relative_to(temporary):
        return of_folder
    return log_folder_error(log_dir, error) if Path(path).is_relative_to(log_dir) else None


def log_folder_error(log_dir: str, error: OSError) -> SettingsError:
    why = error.strerror or str(error)
    return SettingsError(
        f"the folder of the logs (--log-dir) is {log_dir}, which cannot be written: {why}. "
        "Give a folder on a volume with free space that the container's user may write to"
    )


def check_log_folder(log_dir: str | None) -> None:
    """Makes the log folder, or raises SettingsError; without a name, torch makes one."""
    if not log_dir or log_dir == os.devnull:
        return
    tried = Path(log_dir, f".elastic_pytorch_{os.uname().nodename}_{os.getpid()}")
    try:
        Path(log_dir).mkdir(parents=True, exist_ok=True)
        tried.write_bytes(b"written")
        tried.unlink()
    except OSError as error:
        raise log_folder_error(log_dir, error) from error
