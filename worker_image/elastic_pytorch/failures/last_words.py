"""What the end of a worker's stderr says about its failure."""

import os
import re
from itertools import pairwise
from pathlib import Path

# A crash in a process with many threads and modules writes tens of kilobytes after the reason.
MAX_STDERR_BYTES = 64 * 1024
MAX_REASON_CHARACTERS = 600
MAX_REASON_LINE_CHARACTERS = 300

EXCEPTION = re.compile(r"([A-Za-z_][\w.]{0,254})(?::|$)")
_CRASH = "Fatal Python error: "  # faulthandler
_CRASHED = re.compile(
    _CRASH + r'.*?File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)', re.DOTALL
)
# Torch begins each line of an exception and of its log with it.
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
# NCCL's name for an error, with which torch's explanation begins.
_NCCL_NAME = re.compile(r"nccl[A-Z]\w+: ")
_LAST_ERROR = "Last error:"  # NCCL's own message is in the next line
# Lines in which torch's C++ code gives the reason why it ends the process.
_GIVES_REASON = re.compile(
    r"watchdog|heartbeat ?monitor|terminate called|^\s*what\(\):|nccl (error|operations)"
    r"|cuda error: |dist(backend|network|store)error",
    re.IGNORECASE,
)
_FRAME = re.compile(r"\s*(frame #|#\d+ |Exception raised from )")

DEVICE_FAULT = "DeviceFault"  # reported as the exception of a worker that a device has failed
# Texts about a failed device: cudaGetErrorString for cudaErrorECCUncorrectable (214) and
# cudaErrorNvlinkUncorrectable (220), which NCCL and torch repeat; nvmlErrorString for
# NVML_ERROR_GPU_IS_LOST; and the driver's log for Xid 79. A device-side assert, an illegal address
# or a launch failure is nearly always the script's own.
_FAULTS = {
    "uncorrectable ECC error encountered": "an uncorrectable ECC error",
    "uncorrectable NVLink error detected during the execution": "an uncorrectable NVLink error",
    "GPU has fallen off the bus": "the GPU has fallen off the bus",
    "GPU is lost": "the GPU is lost",
}


def read_end(path: str) -> str:
    """Returns an empty text if the file cannot be read."""
    try:
        with Path(path).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - MAX_STDERR_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def without_noise(stderr: str) -> str:
    """Removes prefixes of lines, and faulthandler's kilobytes of module names."""
    text = _RANK_PREFIX.sub("", stderr)
    return "".join(
        line
        for line in text.splitlines(keepends=True)
        if not line.startswith("Extension modules: ")
    )


def crash(words: str) -> str:
    """The report of faulthandler, with the crash's own frames first; empty: none."""
    begin = words.rfind(_CRASH)
    return words[begin:] if begin >= 0 else ""


def place_of_crash(words: str) -> str:
    """The innermost frame as the end of a sentence; empty: unknown."""
    found = _CRASHED.search(crash(words))
    return f" in {found['function']} ({found['file']}, line {found['line']})" if found else ""


def exception(words: str) -> str:
    """The message of the last exception, with NCCL's explanation; empty: none."""
    lines = [line.rstrip() for line in words.splitlines() if line.strip()]
    for i, (before, line) in reversed(list(enumerate(pairwise(lines), start=1))):
        if before.startswith("  ") and EXCEPTION.match(line):  # a traceback's lines are indented
            explained = i + 1 < len(lines) and _NCCL_NAME.match(lines[i + 1])
            return "\n".join(lines[i : i + 4] if explained else [line])
    return ""


def reason(words: str) -> str:
    """The last lines with torch's reason for an abort, each once; empty: none.

    They precede faulthandler's report.
    """
    found: dict[str, None] = {}
    before = ""
    for line in words.splitlines():
        of_nccl = _LAST_ERROR in (before, line) or _NCCL_NAME.match(line)
        if of_nccl or (_GIVES_REASON.search(line) and not _FRAME.match(line)):
            found.pop(line, None)
            found[line] = None
        before = line
    kept: list[str] = []
    room = MAX_REASON_CHARACTERS
    for line in reversed(found):
        cut = line.strip()[:MAX_REASON_LINE_CHARACTERS]
        room -= len(cut) + 1
        if room < 0:
            break
        kept.insert(0, cut)
    return "\n".join(kept)


def find_fault(words: str) -> str:
    """The fault of a device that a text reports, as a phrase; empty: none."""
    return next((fault for phrase, fault in _FAULTS.items() if phrase in words), "")
