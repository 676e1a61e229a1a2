"""A State's memory in its pod: one process writes it, all read it, and the agent keeps it."""

import os
from typing import Any, Protocol

from elastic_pytorch.log import logger
from elastic_pytorch.memory.mapped_state import MappedState
from elastic_pytorch.memory.slots import SLOTS
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.memory.state_names import Identity, names
from elastic_pytorch.state_format.state_version import StateVersion


class Client(Protocol):
    def keep_memory(self, name: str, fd: int) -> None: ...

    def fetch(self, name: str) -> int | None:
        """Returns the file that is kept under a name; None: there is none.

        Raises:
            OSError: the server does not answer.
        """

    def drop(self, name: str) -> None: ...
    def trouble(self, name: str) -> str:
        """Why the server has refused the last request, or cannot write this name's state."""


class PodMemory:
    def __init__(self, name: str, client: Client, slots: int = SLOTS) -> None:
        self._name = name
        self._client = client
        self._slots = slots
        # Its number in the group; None: without an agent, processes share no memory.
        self.pod: int | None = None
        self.keeps = False  # whether this process writes the memory
        self.snapshot: Snapshot | None = None  # of the process that keeps it

    def open(self) -> None:
        """Takes over the memory that this process keeps from an earlier process, or creates it."""
        if not self.keeps or self.snapshot is not None:
            return
        # Without an agent, the server is this process's own and has nothing.
        descriptor = None if self.pod is None else self._client.fetch(self._name)
        if descriptor is not None:
            try:
                self.snapshot = Snapshot(descriptor, self._slots)
                return
            except ValueError as error:
                os.close(descriptor)
                logger.warning("the pod's memory of the state is of no use: %s", error)
        snapshot = Snapshot.create(self._name, self._slots)
        self._client.keep_memory(self._name, snapshot.fd)
        if self.pod is not None:
            held = self._client.fetch(self._name)  # now all processes of the pod can find it
            same = held is not None and os.path.sameopenfile(held, snapshot.fd)
            if held is not None:
                os.close(held)
            if not same:
                snapshot.close()
                trouble = (
                    self._client.trouble(self._name)
                    or "another process of the pod has replaced it by its own"
                )
                raise OSError(f"the agent does not keep this training's state: {trouble}")
        self.snapshot = snapshot

    def newest(self) -> MappedState | None:
        if self.snapshot is None or self.snapshot.newest() is None:
            return None
        return MappedState(self.snapshot.fd)

    def write(self, version: StateVersion, tree: Any) -> None:
        assert self.snapshot is not None
        self.snapshot.write(version, tree)

    def of_keeper(self) -> MappedState:
        """Returns the newest state that another process of the pod keeps."""
        descriptor = self._client.fetch(self._name)
        if descriptor is None:
            raise OSError(
                "the pod's agent holds no state of this training, "
                "though a process of the pod has put one there"
            )
        try:
            return MappedState(descriptor)
        finally:
            os.close(descriptor)


def leave(identity: Identity, snapshot: Snapshot) -> None:
    """Closes a memory whose State is gone, while its process continues."""
    names.leave(identity)
    snapshot.close()


def workers_of_pod() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def number_in_pod() -> int:
    """Not LOCAL_RANK, which is 0 for all workers with torchrun's virtual-local-rank."""
    return int(os.environ.get("RANK", "0")) % workers_of_pod()


def writes_for_its_pod() -> bool:
    return number_in_pod() == 0


def pod_number() -> int:
    """All pods have equally many workers."""
    return int(os.environ.get("RANK", "0")) // workers_of_pod()
