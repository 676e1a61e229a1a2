"""A worker's error file (TORCHELASTIC_ERROR_FILE), in the format of torch's `@record`.

`cold_start/sitecustomize.py` runs this file by its path, in any Python: it imports nothing of this
package.
"""

import contextlib
import json
import os
import sys
import time
import traceback

MAX_END = 16_384  # characters of each end of a text; JSON may escape one as six bytes


def write_error_file(exception: str, message: str, callstack: str) -> None:
    """Does nothing if the script's own `@record` has written it, or there must be none."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    with contextlib.suppress(OSError):
        if path and not (os.path.exists(path) and os.path.getsize(path)):  # noqa: PTH110, PTH202
            extra = {"py_callstack": _bounded(callstack), "timestamp": str(int(time.time()))}
            words = f"{exception}: {message}" if message else exception
            error = {"message": {"message": _bounded(words), "extraInfo": extra}}
            with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
                json.dump(error, file)


def words_of(error: object) -> str:
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"  # as tracebacks have it


def record_exceptions() -> None:
    """Has a worker, as torchrun starts it, record the exception that ends it.

    A hook of the script replaces this one.
    """
    before, worker = sys.excepthook, os.getpid()
    if os.getsid(0) != worker:
        return

    def record(kind, error, frames):  # type: ignore[no-untyped-def] # for old Pythons
        if os.getpid() == worker and not issubclass(kind, KeyboardInterrupt):
            with contextlib.suppress(Exception):
                write_error_file(
                    kind.__name__,
                    words_of(error),
                    "".join(traceback.format_exception(kind, error, frames)),
                )
        before(kind, error, frames)

    sys.excepthook = record


def _bounded(text: str) -> str:
    """A longer text loses its middle, because the agent reads only so much."""
    return text if len(text) <= 2 * MAX_END else f"{text[:MAX_END]}…{text[-MAX_END:]}"
