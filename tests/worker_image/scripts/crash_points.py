"""Writes a checkpoint in processes that die ever later; prints as JSON what each left.

`crash_points.py FOLDER`. What a process does is seen through the interpreter's profiler, which is
told of each call of the system: death comes before or behind such a call. Within a call, it comes
by the kernel: a file may not grow beyond a size, and SIGXFSZ ends who tries. With that signal
ignored, it is a disk that is full.
"""

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_folder
from whole_checkpoints import newest, payload_of

FOLDER = Path(sys.argv[1])
CALLS = {
    os.write,
    os.fsync,
    os.rename,
    os.unlink,
    os.open,
    os.close,
    os.listdir,
    os.mkdir,
    os.stat,
    os.fstat,
}
KEEP = 2


def payload(step: int) -> Iterator[bytes]:
    for i in range(12):
        yield bytes([step]) * (100 + i)


def write(step: int) -> None:
    checkpoint_folder.write(FOLDER, StateVersion(1, step), payload(step), KEEP)


def in_child(run: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def die_at_call(step: int, number: int) -> None:
    count = 0

    def profile(_frame: Any, event: str, called: Any) -> None:
        nonlocal count
        if event in ("c_call", "c_return") and called in CALLS:
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(profile)
    write(step)
    sys.setprofile(None)


def die_at_size(step: int, size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    write(step)


def fail_at_size(step: int, size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        write(step)
    except OSError as error:
        os._exit(error.errno)


def look(kind: str, point: int, code: int) -> None:
    found = list(newest(FOLDER))
    right = all(payload_of(each.path) == b"".join(payload(each.version.step)) for each in found)
    steps = [checkpoint.version.step for checkpoint in found]
    partials = len(list(FOLDER.glob(".partial*")))
    print(
        json.dumps(
            {
                "kind": kind,
                "point": point,
                "code": code,
                "steps": steps,
                "right": right,
                "partials": partials,
            }
        )
    )


def tries(kind: str, die: Callable[[int, int], None], points: Iterator[int]) -> None:
    for point in points:
        shutil.rmtree(FOLDER, ignore_errors=True)
        for step in (1, 2):
            write(step)
        code = in_child(lambda point=point: die(3, point))
        look(kind, point, code)
        write(4)
        look(f"after {kind}", point, code)
        if code == 0:
            return


if __name__ == "__main__":
    tries("call", die_at_call, iter(range(1, 1000)))
    tries("size", die_at_size, iter(range(1, 2000, 13)))
    tries("full", fail_at_size, iter(range(1, 2000, 131)))
