"""What the end of a worker's stderr says about its failure."""

import os
import re
from itertools import pairwise
from pathlib import Path

# What is kept. A crash in a process with many threads and modules writes tens of kilobytes after
# the reason.
MAX_STDERR_BYTES = 64 * 1024
MAX_REASON_CHARACTERS = 600
MAX_REASON_LINE_CHARACTERS = 300

EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")
_CRASH = "Fatal Python error: "  # faulthandler
_CRASHED = re.compile(
    _CRASH + r'.*?File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)', re.DOTALL
)
_RANK_PREFIX = re.compile(
    r"^\[rank\d+\]: ?", re.MULTILINE
)  # torch puts it in front of each line of an exception and of its log
# NCCL's name for an error; torch's explanation begins with it.
_NCCL_NAME = re.compile(r"nccl[A-Z]\w+: ")
_LAST_ERROR = "Last error:"  # NCCL's own message is in the next line
# Lines in which torch's C++ code gives the reason why it ends the process; lines of C++ frames give
# none.
_TELLS = re.compile(
    r"watchdog|heartbeat ?monitor|terminate called|^\s*what\(\):|nccl (error|operations)|cuda error: |dist(backend|network|store)error",
    re.IGNORECASE,
)
_FRAME = re.compile(r"\s*(frame #|#\d+ |Exception raised from )")

DEVICE_FAULT = "DeviceFault"  # reported as the exception of a worker that a device has failed
# What the driver and CUDA say of a device that has failed, not a script: cudaGetErrorString for
# cudaErrorECCUncorrectable (214) and cudaErrorNvlinkUncorrectable (220), which NCCL and torch
# repeat; nvmlErrorString for NVML_ERROR_GPU_IS_LOST, and the driver's words for Xid 79. A
# device-side assert, an illegal address or a launch failure is nearly always the script's own.
_FAULTS = {
    "uncorrectable ECC error encountered": "an uncorrectable ECC error",
    "uncorrectable NVLink error detected during the execution": "an uncorrectable NVLink error",
    "GPU has fallen off the bus": "the GPU has fallen off the bus",
    "GPU is lost": "the GPU is lost",
}


def read_end(path: str) -> str:
    """Returns the end of a file; empty if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - MAX_STDERR_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def without_noise(stderr: str) -> str:
    """Returns stderr without what torch and faulthandler add: prefixes of lines, and kilobytes of module names."""
    text = _RANK_PREFIX.sub("", stderr)
    return "".join(
        line
        for line in text.splitlines(keepends=True)
        if not line.startswith("Extension modules: ")
    )


def crash(words: str) -> str:
    """Returns what faulthandler has written about a crash, the crash's own frames first; empty if there is none."""
    begin = words.rfind(_CRASH)
    return words[begin:] if begin >= 0 else ""


def place_of_crash(words: str) -> str:
    """Returns the innermost frame of a crash, as the end of a sentence; empty if it is not known."""
    found = _CRASHED.search(crash(words))
    return f" in {found['function']} ({found['file']}, line {found['line']})" if found else ""


def exception(words: str) -> str:
    """Returns the message of the exception that was printed last, with NCCL's explanation; empty if there was none."""
    lines = [line.rstrip() for line in words.splitlines() if line.strip()]
    for i, (before, line) in reversed(list(enumerate(pairwise(lines), start=1))):
        if before.startswith("  ") and EXCEPTION.match(line):  # the line after the indented ones
            explained = i + 1 < len(lines) and _NCCL_NAME.match(lines[i + 1])
            return "\n".join(lines[i : i + 4] if explained else [line])
    return ""


def reason(words: str) -> str:
    """Returns why torch has aborted the process: the lines that give the reason, each once; of many, the last ones.

    It is empty if there are none. They come before what faulthandler writes about the crash.
    """
    found: dict[str, None] = {}
    before = ""
    for line in words.splitlines():
        of_nccl = _LAST_ERROR in (before, line) or _NCCL_NAME.match(line)
        if of_nccl or (_TELLS.search(line) and not _FRAME.match(line)):
            found.pop(line, None)
            found[line] = None
        before = line
    kept: list[str] = []
    room = MAX_REASON_CHARACTERS
    for line in reversed(found):
        told = line.strip()[:MAX_REASON_LINE_CHARACTERS]
        room -= len(told) + 1
        if room < 0:
            break
        kept.insert(0, told)
    return "\n".join(kept)


def find_fault(words: str) -> str:
    """Which fault of a device some words report, for people; empty: none."""
    return next((fault for phrase, fault in _FAULTS.items() if phrase in words), "")
