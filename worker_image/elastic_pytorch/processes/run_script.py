"""Runs the user's script in a warm worker, as `python script.py` would.

This undoes what a script could see of the worker's parent, and carries out all steps of Python's
own exit.
"""

import atexit
import builtins
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import io
import logging
import multiprocessing
import multiprocessing.process
import multiprocessing.util
import os
import runpy
import signal
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from elastic_pytorch.failures.error_file import words_of, write_error_file
from elastic_pytorch.pod import preparation
from elastic_pytorch.pod.planned_stop import PlannedStop, script_end
from elastic_pytorch.processes.held_exit import watch_exit
from elastic_pytorch.processes.orphans import die_with_parent, forget_resource_tracker
from elastic_pytorch.processes.stderr_tail import attach
from elastic_pytorch.stopping.answers import answer_stops
from elastic_pytorch.stopping.stacks import answer_dumps

SCRIPT = "script"
MODULE = "module"
INTERRUPTED = 128 + signal.SIGINT
OUTPUT_LOST = 120  # Python's own
SAME_SEED = 67280421310721  # torch's in each process before 2.15

_BUFFERS = (io.BufferedWriter, io.BufferedRandom, io.BufferedRWPair)
_IMPORTED_WITH_THREADS = os.environ.get("OMP_NUM_THREADS")


def run_script(mode: str, target: str, *arguments: str) -> NoReturn:
    code = 1
    try:
        _reset_process()
        sys.argv = [target, *arguments]
        script_end.orderly = True
        preparation.begin()
        code = _outcome(lambda: _run(mode, target))
        if code == 0:
            # A script that needs nothing of its group is its member, too.
            code = _outcome(preparation.join)
        watch = watch_exit(code)
        code = _finish(code)
        watch.cancel()
        script_end.complete()
    finally:
        # Torch's wrapper would wait for an agent that has stopped listening.
        os._exit(code)


def _run(mode: str, target: str) -> None:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    if mode == MODULE:
        _set_first_path(str(Path.cwd()))
        runpy._run_module_as_main(target)  # type: ignore[attr-defined] # what `python -m` itself calls
        return
    path = os.path.abspath(target)  # noqa: PTH100 - as Python itself does, `..` resolved by name
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):  # noqa: PTH112
        _set_first_path(path)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    _set_first_path(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        message = f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}"
        write_error_file(type(error).__name__, message, "")
        print(f"{sys.executable}: {message}", file=sys.stderr)
        raise SystemExit(2) from None
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__["__cached__"] = None
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _reset_process() -> None:
    die_with_parent(os.getppid())
    forget_resource_tracker()
    attach()
    answer_dumps()
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        answer_stops()
    with contextlib.suppress(OSError):
        # As torchrun: a group to be killed with all its children.
        os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    multiprocessing.set_start_method(None, force=True)
    multiprocessing.process.current_process().name = "MainProcess"
    multiprocessing.process._parent_process = None  # type: ignore[attr-defined]
    # A data loader's sockets are in this folder. The agent's may have been emptied since, and the
    # script gets its own.
    multiprocessing.process.current_process()._config.pop("tempdir", None)  # type: ignore[attr-defined]
    tempfile.tempdir = None  # the agent chose it before the script could set TMPDIR
    # A folder of modules may be new since the agent looked for it.
    importlib.invalidate_caches()
    for callback in (logging.shutdown, multiprocessing.util._exit_function):  # type: ignore[attr-defined]
        atexit.unregister(callback)  # some releases of Python have dropped it, some have not
        atexit.register(callback)
    text = sys.__stdout__  # Python begins with the same encoding for both
    with contextlib.suppress(OSError):
        sys.stdin = os.fdopen(
            0,
            encoding=text.encoding if text else None,
            errors=text.errors if text else None,
            closefd=False,
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    random = sys.modules.get("numpy.random")
    if random is not None:
        # Otherwise all workers of a pod, and all after a restart, would draw the same numbers.
        random.seed()
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.initial_seed() != SAME_SEED:
        torch.default_generator.seed()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads != _IMPORTED_WITH_THREADS and threads.isdecimal() and int(threads) > 0:
        torch.set_num_threads(int(threads))  # torch read the variable when it was imported


def _set_first_path(path: str) -> None:
    if not getattr(sys.flags, "safe_path", False):  # Python 3.10 has none
        sys.path.insert(0, path)


def _outcome(run: Callable[[], Any]) -> int:
    """Prints an exception as Python does, and records it as `@record` does."""
    try:
        run()
    except PlannedStop:
        return 0
    except SystemExit as error:
        if code := _exit_code(error.code):
            sys.last_value = error
        return code
    except BaseException as error:  # KeyboardInterrupt ends the script, too
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        error.__traceback__ = frames
        if not isinstance(error, KeyboardInterrupt):  # before the hook, which may end the process
            write_error_file(
                type(error).__name__, words_of(error), "".join(traceback.format_exception(error))
            )
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, frames
        code = _print(error)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else code
    return 0


def _print(error: BaseException) -> int:
    """Prints an exception by the script's hook, as CPython's PyErr_PrintEx."""
    hook = getattr(sys, "excepthook", None)
    if hook is None:
        _complain("sys.excepthook is missing")
        sys.__excepthook__(type(error), error, error.__traceback__)
        return 1
    try:
        hook(type(error), error, error.__traceback__)
    except SystemExit as end:
        return _exit_code(end.code)
    except BaseException as fault:
        fault.__traceback__ = fault.__traceback__ and fault.__traceback__.tb_next
        fault.__context__ = None
        _complain("Error in sys.excepthook:")
        sys.__excepthook__(type(fault), fault, fault.__traceback__)
        _complain("\nOriginal exception was:")
        sys.__excepthook__(type(error), error, error.__traceback__)
    return 1


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    _complain(code)
    write_error_file("SystemExit", words_of(code), "")
    return 1


def _complain(words: object) -> None:
    with contextlib.suppress(Exception):  # a script may have closed stderr, or replaced it
        print(words, file=sys.stderr)


def _finish(code: int) -> int:
    for step in (threading._shutdown, atexit._run_exitfuncs, _close_files):  # type: ignore[attr-defined]
        if _outcome(step) == INTERRUPTED:
            code = INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except Exception:  # a script may have replaced the stream
            with contextlib.suppress(Exception):
                traceback.print_exc()
            code = OUTPUT_LOST
    _outcome(lambda: ctypes.CDLL(None).fflush(None))
    return code


def _close_files() -> None:
    """Closes files that the script left open, as an interpreter does, to write their buffers."""
    standard = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    left = [
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), io.IOBase) and not issubclass(type(thing), io.RawIOBase)
    ]
    # A file that writes into another comes first: text, then compressors, then buffers.
    left.sort(
        key=lambda file: (
            0 if isinstance(file, io.TextIOBase) else 2 if isinstance(file, _BUFFERS) else 1
        )
    )
    buffers = [stream.buffer for stream in standard if isinstance(stream, io.TextIOWrapper)]
    for file in left:
        if file not in standard and file not in buffers:
            with contextlib.suppress(Exception):
                file.close()
