import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from elastic_pytorch.agent.settings import SettingsError
from elastic_pytorch.agent.start_faults import (
    NO_THREAD,
    CannotStartError,
    check_log_folder,
    lack,
    start_fault,
)

FULL = "No space left on device"


TEMPORARY, THREADS = "/scratch/tmp", "processes and threads"
BUSY = errno.EAGAIN, "Resource temporarily unavailable"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        # The socket of multiprocessing.
        (FileNotFoundError(errno.ENOENT, "No such file"), TEMPORARY),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Refused"), TEMPORARY),
        (FileNotFoundError(errno.ENOENT, "", "/scratch/tmp/torchelastic_x"), TEMPORARY),
        (OSError(errno.ENOSPC, FULL, "/scratch/tmp/torchelastic_x/attempt_1"), TEMPORARY),
        (OSError(errno.ENOSPC, FULL, b"/scratch/tmp/pytorch-errorfile"), TEMPORARY),
        (OSError(errno.ENOSPC, FULL), TEMPORARY),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "/scratch/tmp"), TEMPORARY),
        (BlockingIOError(*BUSY), THREADS),
        (BlockingIOError(*BUSY, "/scratch/tmp/program"), THREADS),
        (RuntimeError(NO_THREAD), THREADS),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "no memory"),
        (MemoryError(), "no memory"),
        (OSError(errno.EMFILE, "Too many open files"), "the agent has reached its limit of open"),
        (OSError(errno.ENFILE, "Too many, in system"), "the node has reached its limit of open"),
        (EOFError("unexpected EOF"), "forks workers has ended"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "forks workers has ended"),
    ],
)
def test_start_fails_for_the_pod(error: Exception, expected: str) -> None:
    fault = start_fault(
        error,
        temporary="/scratch/tmp",
        log_dir="/scratch/tmp/torchelastic_x",
        program="/scratch/tmp/program",
    )
    assert isinstance(fault, CannotStartError)
    assert expected in str(fault)


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Denied", "/logs/attempt_0"),
        OSError(errno.ENOSPC, FULL, "/logs/attempt_0"),
    ],
)
def test_start_fails_for_the_folder_of_the_logs(error: OSError) -> None:
    fault = start_fault(error, temporary="/tmp", log_dir="/logs", program="")
    assert isinstance(fault, SettingsError)
    assert "the folder of the logs (--log-dir) is /logs" in str(fault)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file", "/scratch/tmp/program"),
        FileNotFoundError(errno.ENOENT, "No such file", "/bin/program"),
        OSError(errno.E2BIG, "Argument list too long", "/scratch/tmp/program"),
        PermissionError(errno.EACCES, "Denied", "/scratch/tmp2/program"),
        RuntimeError("anything else"),
    ],
)
def test_start_fails_for_the_program(error: Exception) -> None:
    assert (
        start_fault(
            error, temporary="/scratch/tmp", log_dir="/logs", program="/scratch/tmp/program"
        )
        is None
    )
    assert not lack(error)


def test_folder_of_the_logs_is_made(tmp_path: Path) -> None:
    logs = tmp_path / "new" / "logs"
    check_log_folder(str(logs))
    assert not list(logs.iterdir())
    check_log_folder(None)
    check_log_folder("/dev/null")
    with pytest.raises(
        SettingsError, match=r"the folder of the logs .* is /proc/logs, which cannot be written"
    ):
        check_log_folder("/proc/logs")


# The agent's own module, in a process that holds an object of which it can be seen that it is
# freed.
ENDS = """
import atexit, os, runpy

class Held:
    def __del__(self, write=os.write):
        write(1, b"freed")

held = Held()
atexit.register(print, "as Python does")
runpy.run_module("elastic_pytorch.agent", run_name="__main__")
"""


@pytest.mark.process
def test_agent_ends_as_python_does_but_frees_nothing() -> None:
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("ELASTIC_PYTORCH_")
    }
    ended = subprocess.run(
        [sys.executable, "-c", ENDS], env=environ, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stdout == "as Python does\n"
