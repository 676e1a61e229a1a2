"""How a worker shows whether its main thread still runs Python code.

Python runs no signal handler while the main thread is in C. On `STACK_SIGNAL`, C writes the main
thread's Python stack, wherever the thread is. On `ANSWER_SIGNAL`, Python writes a line as soon as
it can run any handler. Both write to a memory file, which the agent finds among the process's open
files.

`cold_start/sitecustomize.py` runs this file by its path, in any Python: it imports nothing of this
package.
"""

import contextlib
import faulthandler
import os
import signal

STACK_SIGNAL = signal.SIGRTMIN + 11
ANSWER_SIGNAL = signal.SIGRTMIN + 12
MEMORY_NAME = "elastic-pytorch-stop"
STACK_HEAD = "Stack (most recent call first):"
ANSWER_HEAD = "Python runs; the handler is "


def answer_stops() -> None:
    """Only for the main thread."""
    memory = os.memfd_create(MEMORY_NAME)

    def answer(_number: int, _frame: object) -> None:
        # It must not disturb a script that has closed the file.
        with contextlib.suppress(Exception):
            line = ANSWER_HEAD + _call_of(signal.getsignal(signal.SIGTERM)) + "\n"
            os.write(memory, line.encode("ascii", "backslashreplace"))  # as faulthandler does

    signal.signal(ANSWER_SIGNAL, answer)
    faulthandler.register(STACK_SIGNAL, file=memory, all_threads=False, chain=False)
    # A system call that it interrupts must not restart: Python would miss another signal meanwhile.
    signal.siginterrupt(STACK_SIGNAL, True)


def _call_of(handler: object) -> str:
    """How faulthandler shows a call of the handler, without its line; empty: not Python."""
    handler = getattr(handler, "func", handler)  # of a functools.partial
    call = handler if hasattr(handler, "__code__") else type(handler).__call__
    code = getattr(call, "__code__", None)
    return "" if code is None else f'File "{code.co_filename}" in {code.co_name}'
