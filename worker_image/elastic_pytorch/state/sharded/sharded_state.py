"""The state of a training whose model is sharded over the ranks, so that no rank has it completely (FSDP2's fully_shard)."""

import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from elastic_pytorch.log import logger
from elastic_pytorch.progress.report import report, report_failed_saves
from elastic_pytorch.state.last_commits import unfinished
from elastic_pytorch.state.restore import Found, TorchGroup, claim, cpu_group
from elastic_pytorch.state.sharded.sharded_checkpoint import (
    Engine,
    load_sharded,
    newest_sharded,
    put_back,
    save_sharded,
    states_of,
)
from elastic_pytorch.state.sharded.shared_folder import first_does, refuse_unshared
from elastic_pytorch.state.state import State
from elastic_pytorch.state.values.alike import refuse_states_of_their_own
from elastic_pytorch.state.values.per_rank import exchange_all
from elastic_pytorch.state.values.registered import describe, model_of, refuse_foreign_sharding, refuse_unlike
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_folder
from elastic_pytorch.storage.checkpoint_folder import Superseded

LAST_SAVE_SECONDS = 10.0  # less than half of a pod's usual grace period, which is what a group has to stop
RETRY_SECONDS = 1.0


class ShardedState(State):
    """A `State` for sharded models: every few steps, all ranks together write a checkpoint. None is kept in memory.

    So the loss of a worker costs the steps since the last checkpoint. A stop at a boundary costs none: it always saves. Register the
    sharded model and its optimizer, besides what State takes.

    Args:
        folder: of the checkpoints, on a volume that all pods share.
        every: steps from one checkpoint to the next. Training waits while one is written.
        name: of the training, if it is not the only one in the folder.
        keep: how many checkpoints to keep there.
        total_steps: at which step training is done, for the progress that is reported.
        registered: what to save, by names of your choice.
    """

    _LOAD_INSTEAD = "after restore(), if it finds no step: if state.restore() == 0: load(model)"

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every: int,
        name: str = "",
        keep: int = 2,
        total_steps: int | None = None,
        **registered: Any,
    ) -> None:
        if "initial" in registered:
            raise ValueError(
                f"{type(self).__name__} takes no initial, as each rank has a part of the model: load the weights on all ranks "
                f"{self._LOAD_INSTEAD}"
            )
        super().__init__(folder, name=name, keep=keep, every=every, total_steps=total_steps, **registered)
        self._path = Path(self._folder)
        self._engine: Engine | None = None
        self._saved = StateVersion(0, 0)
        self._failed_saves = 0  # in a row

    def restore(self) -> int:
        """Loads the newest whole checkpoint into the registered objects; if there is none, they stay as they are.

        To be called by all ranks, once for each group, after `init_process_group` and `fully_shard`.

        Returns:
            How many steps are done.

        Raises:
            OSError: the folder cannot be read or written, or is not the same one for all ranks.
            RuntimeError: there is no process group; or the checkpoint does not fit the registered objects; or these are not the same on
                all ranks, or are sharded in another way.
        """
        if not dist.is_initialized():
            raise RuntimeError("a sharded model is of a group: call init_process_group first")
        refuse_foreign_sharding(self._objects)
        if (part := next((name for name, each in self._objects.items() if model_of(each) is not each), None)) is not None:
            raise RuntimeError(f"{part}: elastic.Trained is for State; register the whole model with ShardedState")
        self._group = cpu_group()
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        group = TorchGroup(self._group)
        refuse_unlike(group, {"State": self._identity.description, **describe(self._objects)})
        refuse_states_of_their_own(group, self._identity.key, self._objects)
        refuse_unshared(self._path, self._group)
        exchange_all(self._objects.values(), self._group)
        generation = self._next_generation()
        if self._rank == 0:
            claim(self._folder, generation)
        found = load_sharded(self._path, lambda: {"objects": self._states()}, group=self._group, engine=self._engine)
        if found is not None:
            self._load(Found(found[0], found[1], generation, f"the checkpoint of {found[0]}"))
        unfinished.discard(self)
        self._version, self._committed = StateVersion(generation, self._step), self._step
        self._saved = found[0] if found else StateVersion(0, 0)
        if self._rank == 0:
            where = f"checkpoint {tuple(found[0])}" if found else "the beginning"
            logger.info("going on from step %d, found in %s", self._step, where)
        self._begin_steps()
        return self._step

    def flush(self, timeout_seconds: float = 0.0) -> bool:
        """Writes the last commit if it is not on the disk yet. To be called by all ranks; not needed with `total_steps`.

        Returns:
            Whether it is on the disk; False: it cannot be written, and the log says why.
        """
        del timeout_seconds  # a peer that is lost ends the wait
        if self._saved.step != self._step:
            exchange_all(self._objects.values(), self._group)
            self._write()
        return self._saved.step == self._step

    def complete_at_exit(self) -> None:
        """A checkpoint takes all ranks, and the process ends: what is not saved is told."""
        if self._saved.step != self._step and self._rank == 0:
            logger.warning(
                "steps %d to %d are not saved: give ShardedState total_steps, or call its flush() on all ranks at the end",
                self._saved.step + 1,
                self._step,
            )

    def _next_generation(self) -> int:
        """Returns one more than the generation of any earlier group, as rank 0 finds it."""
        known = torch.zeros(1, dtype=torch.int64)
        if self._rank == 0:
            newest = newest_sharded(self._path)
            known[0] = max(newest.generation if newest else 0, checkpoint_folder.claimed(self._path))
        dist.broadcast(known, 0, group=self._group)
        return int(known) + 1

    def _states(self) -> dict[str, Any]:
        return states_of(self._objects)

    def _put_back(self, states: dict[str, Any], found: Found) -> None:
        del found
        put_back(self._objects, states)

    def _write(self) -> None:
        self._version = StateVersion(self._version.generation, self._step)
        try:
            save_sharded(self._path, self._version, self._tree(), self._keep, group=self._group, engine=self._engine)
        except (OSError, Superseded) as error:
            logger.warning("step %d is not saved: %s", self._step, error)
            self._failed_saves += 1
            if self._rank == 0:
                report_failed_saves(self._failed_saves, f"{error}")
            return
        self._saved, self._failed_saves = self._version, 0
        report(checkpoint_step=self._step)

    def _settle_last(self) -> None:
        """Saves again what could not be saved, as it would be lost: until `LAST_SAVE_SECONDS` are over.

        Raises:
            OSError: on all ranks alike: it cannot be saved.
        """
        deadline = time.monotonic() + LAST_SAVE_SECONDS
        while self._saved.step != self._step:
            if not first_does(lambda: int(time.monotonic() < deadline), self._group):
                raise OSError(
                    f"step {self._step} cannot be saved to {self._folder}, as the log says, and nothing else has it: free "
                    f"or repair the volume. The last checkpoint is of step {self._saved.step}"
                )
            time.sleep(RETRY_SECONDS)
            self._write()

    def _flush(self, *, now: bool) -> None:
        """Does nothing: there is no memory to be written to the disk."""
