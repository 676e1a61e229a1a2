"""`python -m elastic_pytorch.agent [torchrun's options] script.py args…`: process 1 of a pod.

Exit codes: 0, the job is complete; 1, it has failed; 2, the configuration cannot be run; 137, the
pod must be replaced; 143, SIGTERM has ended the agent.
"""

import signal

from elastic_pytorch.agent.signals import end_at_once

if __name__ == "__main__":
    # As process 1, this process would ignore SIGTERM for the seconds that importing torch takes.
    signal.signal(signal.SIGTERM, end_at_once)

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from elastic_pytorch.agent.settings import SettingsError, read_settings
from elastic_pytorch.agent.start_faults import CannotStartError, end_of_no_more_use, lack
from elastic_pytorch.agent.torch_names import check_torch
from elastic_pytorch.failures.failure import write_termination_message
from elastic_pytorch.log import logger, start_logging
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from elastic_pytorch.pod.server import PodServer
from elastic_pytorch.processes.limits import limit_threads, raise_open_files
from elastic_pytorch.processes.temporary_folder import (
    TemporaryFolderError,
    candidates,
    choose_temporary_folder,
)
from elastic_pytorch.progress.receiver import ProgressReceiver
from elastic_pytorch.progress.report import REPORT_SOCKET
from elastic_pytorch.storage.checkpoint_writer import CheckpointWriter

CANNOT_RUN = 2


def main(argv: Sequence[str]) -> int:
    began = time.monotonic()
    start_logging()
    _forget_working_directory()
    try:
        choose_temporary_folder(candidates(os.environ, str(Path.cwd())))
    except TemporaryFolderError as error:
        return end_of_no_more_use(str(error))
    limit_threads(argv)
    raise_open_files()
    progress = ProgressReceiver()
    if progress.path:
        os.environ[REPORT_SOCKET] = progress.path
    pod_server = PodServer(CheckpointWriter(progress.note_written))
    if path := pod_server.prepare():
        os.environ[LOCAL_SOCKET] = path
    try:
        settings = read_settings()
        check_torch()
        from elastic_pytorch.agent.launch import launch  # noqa: PLC0415 - imports torch, which takes seconds

        return launch(argv, settings, progress, pod_server, began)
    except SettingsError as error:
        logger.error("%s", error)
        write_termination_message(str(error))
        return CANNOT_RUN
    except CannotStartError as error:
        return end_of_no_more_use(str(error))
    except Exception as error:
        if lacking := lack(error):
            return end_of_no_more_use(f"the agent cannot go on: {error}; {lacking}")
        logger.exception("the agent has failed")
        write_termination_message(f"{type(error).__name__}: {error}")
        return 1
    finally:
        pod_server.close()
        progress.close()


def _end(code: int) -> NoReturn:
    """Ends this process as Python does, but does not spend a second on freeing torch's memory."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _forget_working_directory() -> None:
    """Removes the working directory from the path: its queue.py would hide Python's own."""
    here = str(Path.cwd())
    # `python -m` adds it. Python 3.10 has no -P, which prevents that.
    if (
        not getattr(sys.flags, "safe_path", False)
        and sys.path[:1] == [here]
        and not __file__.startswith(here + os.sep)
    ):
        del sys.path[0]


if __name__ == "__main__":
    _end(main(sys.argv[1:]))
