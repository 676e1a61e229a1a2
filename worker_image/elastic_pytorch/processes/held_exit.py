"""Names what keeps a process alive after its script, and ends that of a failed script."""

import os
import sys
import threading
import traceback
from collections.abc import Mapping
from types import FrameType

from elastic_pytorch.log import logger

EXIT_SECONDS = 30.0  # from the end of a script to the end of its process
VARIABLE = "ELASTIC_PYTORCH_EXIT_SECONDS"


def watch_exit(code: int) -> threading.Timer:
    """Ends the process of a failed script, unless the timer is cancelled."""
    seconds = _limit_seconds()
    timer = threading.Timer(seconds, _report, (code, seconds))
    timer.daemon = True
    timer.start()
    return timer


def _limit_seconds() -> float:
    try:
        seconds = float(os.environ.get(VARIABLE, ""))
    except ValueError:
        return EXIT_SECONDS
    return seconds if 0 <= seconds <= threading.TIMEOUT_MAX else EXIT_SECONDS


def _report(code: int, seconds: float) -> None:
    held = what_holds()
    if not code:
        logger.warning("the script has ended %g s ago, and its process waits for %s", seconds, held)
        return
    logger.error(
        "the script has failed %g s ago, and its process still waits for %s. "
        "It is ended with exit code %d; %s changes the time",
        seconds,
        held,
        code,
        VARIABLE,
    )
    os._exit(code)


def what_holds() -> str:
    main, frames = threading.main_thread(), sys._current_frames()
    threads = [
        each
        for each in threading.enumerate()
        if each is not main and not each.daemon and each.ident in frames
    ]
    if not threads:
        return f"an exit handler or a file, at {_place(frames, main)}"
    named = [f"{each.name!r} at {_place(frames, each)}" for each in threads]
    return f"{'the thread' if len(named) == 1 else 'threads'} {', '.join(named)}"


def _place(frames: Mapping[int, FrameType], thread: threading.Thread) -> str:
    stack = traceback.extract_stack(frames[thread.ident or 0])
    places = [each for each in stack if each.filename != threading.__file__] or stack
    return f"{places[-1].filename}:{places[-1].lineno} in {places[-1].name}"
