"""The commits of a State to the pod's memory."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from elastic_pytorch.group import in_process
from elastic_pytorch.memory.commit_copies import Copier
from elastic_pytorch.memory.gpu_copies import CudaLane
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.state.commit_interval import CommitInterval
from elastic_pytorch.state_format.state_version import StateVersion


class Commits:
    def __init__(
        self, interval: CommitInterval, lane: CudaLane, registered: Iterable[Any], *, overlap: bool
    ) -> None:
        self.snapshot: Snapshot | None = None  # the memory, if this process has one
        self._interval = interval
        self._copier = Copier(lane, registered, overlap=overlap)
        weakref.finalize(self, self._copier.close).atexit = False
        under_way.add(self)

    @property
    def copying(self) -> bool:
        return self.snapshot is not None and self.snapshot.copying

    def write(self, version: StateVersion, tree: Callable[[], Any]) -> None:
        """Starts to copy a state; a copy that completes at once is the newest state on return."""
        if self.snapshot is None:
            return
        on_device = self._copier.catch_up()
        self.settle(wait=True)  # here, and not in `start`, so that the commit before is measured
        if on_device:
            self._interval.catch_up()
        with self._interval.holding_up():
            self.snapshot.start(version, tree(), self._copier.copy, in_process.check)
        self.settle(wait=False)

    def settle(self, *, wait: bool) -> None:
        if self.snapshot is None or not self.snapshot.copying:
            return
        with self._interval.holding_up():
            settled = self.snapshot.settle(wait=wait)
        if settled:
            self._interval.end_commit(self._copier.held_up_seconds)

    def end_step(self) -> None:
        self._copier.end_step()

    def close(self) -> None:
        self.snapshot = None
        self._copier.close()


under_way: weakref.WeakSet[Commits] = weakref.WeakSet()  # whose copies may be in progress
