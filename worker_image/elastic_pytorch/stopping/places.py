"""Classifies where a training process is, by the Python stack of its main thread.

A wait in C has no frame: the innermost is the Python function that called. Under
DistributedDataParallel that is the backward pass, in which the reducer waits for other ranks.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "collective",
    "dataLoader",
    "lock",  # or a thread or a process
    "file",
    "other",
    "ended",  # with exit code 0
    "stopped",  # by SIGSTOP
    "kernel",  # in a call that no signal ends
    "silent",  # does not answer
]

MAX_FRAME_CHARACTERS = 100

_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.+)')
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")
_OPERATION = re.compile(r"[a-z][a-z0-9_]{0,39}")
_NOT_THE_SCRIPT = re.compile(
    r"<|/site-packages/|/dist-packages/|/lib(64)?/python3|/elastic[-_]pytorch/"
    r"|/torch/(distributed|autograd|nn|utils|_\w+)/"
    r"|/torch/(_\w+|library|serialization|functional)\.py$"
)
_COLLECTIVES = re.compile(r"/torch/distributed/(distributed_c10d|rendezvous)\.py$")
_FUNCTIONAL = re.compile(r"/torch/distributed/_functional_collectives\.py$")
# These call collectives in C: the replicas' parameters and buffers, shards, and the backward pass.
_CALLERS_OF_COLLECTIVES = re.compile(
    r"/torch/(nn/parallel/distributed|distributed/(utils|fsdp/.*|_composable/.*|tensor/.*))\.py$"
)
_BACKWARD = re.compile(r"/torch/autograd/(graph|__init__)\.py$")
_DATA_LOADER = re.compile(r"/torch/utils/data/")
_LOCKS = re.compile(
    r"/lib(64)?/python3[^/]*/(threading|queue|selectors|subprocess|multiprocessing/\w+"
    r"|concurrent/futures/\w+|asyncio/\w+)\.py$|/filelock/"
)
_FILES = re.compile(
    r"/torch/(serialization|distributed/checkpoint/.*)\.py$"
    r"|/lib(64)?/python3[^/]*/(pathlib(/\w+)?|shutil|tempfile|zipfile(/\w+)*|tarfile|gzip)\.py$"
    r"|/safetensors/|/numpy/(lib|core|_core)/|/fsspec/|/elastic_pytorch/storage/|^<frozen codecs>$"
)
# Parts of the names of kernel functions that wait for a file or a file system.
_FILE_WAITS = (
    "pipe_read",
    "wait_for_partner",
    "folio_wait",
    "wait_on_page",
    "rpc_wait",
    "nfs",
    "fuse",
    "request_wait_answer",
    "ceph",
)


@dataclass(frozen=True, slots=True)
class StackSite:
    kind: Kind
    # A collective's name in torch, such as `all_reduce`, or `backward`.
    operation: str = ""
    frame: str = ""  # the innermost of the user's script, as `train.py:41 load`


def place_of(stack: str, kernel_wait: str = "") -> StackSite:
    """Classifies a main thread by its stack in faulthandler's format, innermost call first.

    `kernel_wait` is from /proc/PID/wchan; empty: unknown. Python has no frame for a `read` of the
    script.
    """
    found = map(_FRAME.fullmatch, stack.splitlines())
    frames = [(match["file"], match["line"], match["function"]) for match in found if match]
    own = next(
        (index for index, (file, _, _) in enumerate(frames) if not _NOT_THE_SCRIPT.search(file)),
        None,
    )
    frame = "" if own is None else _shown(*frames[own])
    called = [(file, function) for file, _, function in frames[:own]]
    if operation := _operation(called):
        return StackSite("collective", operation, frame)
    if any(_DATA_LOADER.search(file) for file, _, _ in frames):
        return StackSite("dataLoader", frame=frame)
    if any(_FILES.search(file) for file, _ in called) or any(
        part in kernel_wait for part in _FILE_WAITS
    ):
        return StackSite("file", frame=frame)
    return StackSite(
        "lock" if any(_LOCKS.search(file) for file, _ in called) else "other", frame=frame
    )


def _operation(called: Sequence[tuple[str, str]]) -> str:
    """Returns the outermost of nested collectives, as in `all_gather_object`; empty: none.

    `called` has files and functions, the innermost first.
    """
    for file, function in called[:1]:
        if _BACKWARD.search(file) and function in ("_engine_run_backward", "backward", "grad"):
            return "backward"
    by_file = [(file, function.lstrip("_")) for file, function in called]
    by_file = [(file, function) for file, function in by_file if _OPERATION.fullmatch(function)]
    named = [function for file, function in reversed(by_file) if _COLLECTIVES.search(file)]
    named += [function for file, function in by_file if _FUNCTIONAL.search(file)]
    named += [function for file, function in by_file[:1] if _CALLERS_OF_COLLECTIVES.search(file)]
    return next(iter(named), "")


def _shown(file: str, line: str, function: str) -> str:
    text = f"{file.rpartition('/')[2]}:{line} {function}"
    return _UNPRINTABLE.sub(" ", text).strip()[:MAX_FRAME_CHARACTERS]
