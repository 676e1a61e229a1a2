"""Where a process of a group that hangs stands, as its agent has read it from the process's stack."""

from dataclasses import dataclass
from enum import StrEnum

MAX_PLACES = 128  # of one pod that are compared


class PlaceKind(StrEnum):
    """What a process's main thread is in; docs/internals/protocol.md describes each."""

    COLLECTIVE = "collective"
    DATA_LOADER = "dataLoader"
    LOCK = "lock"
    FILE = "file"
    OTHER = "other"
    ENDED = "ended"
    STOPPED = "stopped"
    KERNEL = "kernel"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Place:
    kind: PlaceKind
    # Of a collective, as torch calls it; `backward` in the backward pass. Else empty.
    operation: str = ""
    # The innermost one of the user's own script, such as `train.py:41 load`; empty: none is known.
    frame: str = ""


SILENT = Place(PlaceKind.SILENT)
