"""The names of a process's States, by which each finds its checkpoints and its memory.

A name is the same after a restart and on all ranks: the checkpoint folder's, or that of the script.
Without both, it is the number of the State among those that the script creates.
"""

import hashlib
import os
import re
from typing import NamedTuple

from elastic_pytorch.object_url import ObjectUrl, location_of

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class Identity(NamedTuple):
    key: str  # its memory is named after it
    folder: str  # its checkpoints' absolute path or URL; empty: none
    description: str  # the same on all ranks, even if the folder's path differs
    number: int  # of this State alone

    @property
    def memory(self) -> str:
        return "state-" + hashlib.sha256(self.key.encode()).hexdigest()[:16]


class NameCounts(NamedTuple):
    given: int
    numbers: int


class StateNames:
    """Two States of one name would overwrite each other's memory and checkpoints."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}
        self._left: set[str] = set()
        self._count = NameCounts(0, 0)

    def give(self, folder: str | os.PathLike[str] | None, name: str) -> Identity:
        if name and not _NAME.fullmatch(name):
            raise ValueError(
                f"name={name!r}: a name is of letters, digits, '_', '.' and '-', "
                "as it may become that of a folder"
            )
        location = None if folder is None else location_of(folder)
        path, (given, numbers) = "", self._count
        if location is not None:
            path = str(
                (location if isinstance(location, ObjectUrl) else location.absolute()) / name
            )
            key, description = path, f"a folder, name={name!r}"
        elif name:
            key, description = f"name {name}", f"no folder, name={name!r}"
        else:
            key = f"number {numbers}"
            description = f"no folder, the {numbers + 1}. of this script that has no name"
            numbers += 1
        if key in self._given:
            of = f"the checkpoint folder {path}" if path else f"name={name!r}"
            raise RuntimeError(
                f"this process has made a State of {of} already: give each training a name= or a "
                "folder of its own, or close() the first State if this one is to go on from it"
            )
        identity = Identity(key, path, description, given)
        self._count = NameCounts(given + 1, numbers)
        self._given[key] = given
        self._left.discard(identity.memory)
        return identity

    def free(self, identity: Identity) -> None:
        """Frees the name for another State, which continues from this one's memory."""
        if self._given.get(identity.key) == identity.number:
            del self._given[identity.key]

    def leave(self, identity: Identity) -> None:
        """Records that a State is gone, whose memory may be released once it is on the disk.

        In a function that is repeated, the next State of the name may be there already.
        """
        if self._given.get(identity.key, identity.number) == identity.number:
            self._left.add(identity.memory)

    def left(self) -> frozenset[str]:
        return frozenset(self._left)

    def forget(self, memory: str) -> None:
        self._left.discard(memory)

    def mark(self) -> NameCounts:
        return self._count

    def go_back(self, mark: NameCounts) -> None:
        """Frees all names since a mark: a repeated function's States find their memories."""
        self._given = {key: number for key, number in self._given.items() if number < mark.given}
        self._left.clear()
        self._count = NameCounts(self._count.given, mark.numbers)


names = StateNames()  # of this process
