"""Why a start of workers has failed: for what the user wants to run, for the folder of the logs, or for the pod and its node."""

import errno
import os
import signal
from pathlib import Path

from elastic_pytorch.agent.settings import SettingsError

# The exit code of a pod that must be replaced: one that is never the job's failure.
OF_NO_MORE_USE = 128 + signal.SIGKILL
# What a process may lack, whatever it runs.
LACKS = {
    errno.EAGAIN: "the pod or its node has reached its limit of processes and threads (pids)",
    errno.ENOMEM: "the pod or its node has no memory left",
    errno.EMFILE: "the agent has reached its limit of open files (ulimit -n)",
    errno.ENFILE: "the node has reached its limit of open files",
}
NO_THREAD = "can't start new thread"  # Python's words for EAGAIN


class CannotStartError(Exception):
    """A pod that cannot start workers, for a reason that is not the script's: it must be replaced.

    The message says why.
    """


class LogFolderError(SettingsError):
    """The folder of the logs cannot be written. The message names it."""


def lack(error: BaseException) -> str:
    """What the pod or its node lacks, if that is why something failed; else empty."""
    if isinstance(error, RuntimeError) and NO_THREAD in str(error):
        return LACKS[errno.EAGAIN]
    if isinstance(error, MemoryError):
        return LACKS[errno.ENOMEM]
    return LACKS.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def start_fault(
    error: Exception, *, temporary: str, log_dir: str, program: str
) -> CannotStartError | LogFolderError | None:
    """Why workers could not be started; None: for what the user wants to run, such as a program that does not exist.

    The program is what each worker was to execute; empty if workers are forked. The folder of the
    logs may lie in the temporary one.
    """
    told = f"no worker can be started: {error}"
    if lacking := lack(error):
        return CannotStartError(f"{told}; {lacking}")
    if isinstance(error, EOFError | BrokenPipeError | ConnectionResetError):
        return CannotStartError(f"{told}; the process that forks workers has ended")
    if not isinstance(error, OSError):
        return None
    # A socket's connect names no path; multiprocessing's lie in the folder.
    if error.filename is None:
        of_folder = (
            isinstance(error, FileNotFoundError | ConnectionRefusedError)
            or error.errno == errno.ENOSPC
        )
        return (
            CannotStartError(f"{told}; the temporary folder is {temporary}") if of_folder else None
        )
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    if path == program:
        return None
    if Path(path).is_relative_to(temporary):
        return CannotStartError(f"{told}; the temporary folder is {temporary}")
    return log_folder_error(log_dir, error) if Path(path).is_relative_to(log_dir) else None


def log_folder_error(log_dir: str, error: OSError) -> LogFolderError:
    why = error.strerror or str(error)
    return LogFolderError(
        f"the folder of the logs (--log-dir) is {log_dir}, which cannot be written: {why}. "
        "Give a folder on a volume with free space that the container's user may write to"
    )


def check_log_folder(log_dir: str | None) -> None:
    """Makes sure that the folder of the logs can be written, and makes it if it is missing.

    None: torch makes one.

    Raises:
        LogFolderError: it cannot.
    """
    if not log_dir or log_dir == os.devnull:
        return
    tried = Path(log_dir, f".elastic_pytorch_{os.uname().nodename}_{os.getpid()}")
    try:
        Path(log_dir).mkdir(parents=True, exist_ok=True)
        tried.write_bytes(b"written")
        tried.unlink()
    except OSError as error:
        raise log_folder_error(log_dir, error) from error
