"""Keeps the state in the memory of pods between the checkpoints that a framework writes itself."""

from typing import Any, Protocol

import elastic_pytorch as elastic
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from elastic_pytorch.state.sharded.shared_folder import first_does
from elastic_pytorch.state.source import NONE
from elastic_pytorch.state_format.state_version import StateVersion


class FrameworkCheckpoints(Protocol):
    """The checkpoints that a framework writes and reads by itself, in a folder that all pods share.

    What a method raises ends the training; all ranks but one may then wait for each other until
    that one has ended.
    """

    def newest(self) -> int:
        """Returns the step of the newest checkpoint; 0: there is none. Called on rank 0 only.

        Raises:
            OSError: the folder cannot be read; all ranks raise it.
        """

    def load(self, step: int) -> int:
        """Loads a checkpoint on all ranks, and returns how many steps are done then.

        Args:
            step: of the checkpoint; 0: there is none, and what the training begins with is loaded.
        """

    def save(self, step: int) -> None:
        """Has a checkpoint of a step when it returns, as nothing else has that step.

        Called on all ranks.
        """

    def settle(self) -> None:
        """Waits for a checkpoint that is being written, as the processes may end next.

        Called on all ranks.
        """


class FrameworkState(ShardedState):
    """A `ShardedState` without a folder, for a framework that writes its own checkpoints.

    `restore` loads what the pods' memory holds, unless the framework has a newer checkpoint. A stop
    at a boundary has a checkpoint written only if no pod that stays has the state. The framework
    writes all others, when it likes.

    Args:
        checkpoints: of the framework.
        options: see `State.Options`. Without `memory`, it only stops at boundaries.
        registered: what the framework's checkpoints have, by names of your choice.

    Raises:
        ValueError: an argument is invalid.
    """

    def __init__(
        self,
        checkpoints: FrameworkCheckpoints,
        options: elastic.State.Options | None = None,
        /,
        **registered: Any,
    ) -> None:
        super().__init__(None, options, **registered)
        self._checkpoints = checkpoints

    def _read(
        self, in_memory: StateVersion, on_disk: StateVersion, generation: int
    ) -> tuple[StateVersion, str]:
        newest = first_does(self._checkpoints.newest, self._group)
        if in_memory != NONE and in_memory.step >= newest:
            return super()._read(in_memory, on_disk, generation)
        self._step = self._checkpoints.load(newest)
        where = f"the framework's checkpoint of step {newest}" if newest else "the beginning"
        return StateVersion(generation, self._step), where

    def _settle_last(self, *, stop: bool) -> bool:
        self._checkpoints.settle()
        return super()._settle_last(stop=stop)

    def _save_last(self, *, stop: bool) -> bool:
        if stop:
            self._checkpoints.save(self._step)
        return stop
