"""Counts the descriptors by which this process holds files that a test has made.

A count of all descriptors would not do: threads that earlier tests have left may open a socket at
any time.
"""

import contextlib
import os
from collections.abc import Iterable


def identity(descriptor: int) -> tuple[int, int]:
    """Device and inode of the file behind a descriptor, be it a pipe or a memory file."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def count_descriptors(files: Iterable[tuple[int, int]]) -> int:
    """How many descriptors of this process refer to one of the files, given by `identity`."""
    wanted, count = set(files), 0
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all that is wanted
        # The descriptor of the listing itself, or closed by another thread meanwhile.
        with contextlib.suppress(OSError):
            count += identity(int(name)) in wanted
    return count
