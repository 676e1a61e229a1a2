"""The state of a training whose model is sharded over the ranks."""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch.distributed as dist

from elastic_pytorch.group import in_process
from elastic_pytorch.group.mesh_caches import refuse_stale
from elastic_pytorch.group.rank_group import TorchGroup, cpu_group, gather_parts
from elastic_pytorch.log import logger
from elastic_pytorch.object_url import location_of
from elastic_pytorch.pod import agent_link
from elastic_pytorch.progress.report import report_failed_saves, report_written
from elastic_pytorch.state.last_commits import unfinished
from elastic_pytorch.state.options import Options as StateOptions
from elastic_pytorch.state.restore import Found
from elastic_pytorch.state.sharded.background_save import (
    BackgroundSave,
    copy_on_cpu,
    has_room_for_copy,
)
from elastic_pytorch.state.sharded.frozen_shards import compare_frozen
from elastic_pytorch.state.sharded.last_save import Outcome, save_last
from elastic_pytorch.state.sharded.peers.memory import PeerMemory
from elastic_pytorch.state.sharded.same_values import refuse_other_values
from elastic_pytorch.state.sharded.sharded_checkpoint import (
    Engine,
    load_sharded,
    load_state,
    save_sharded,
    states_of,
    template_of,
)
from elastic_pytorch.state.sharded.shared_folder import claim_folder, refuse_unshared
from elastic_pytorch.state.sharded.stages import agree_on_stages, meshes_of, numbers_of
from elastic_pytorch.state.sharded.trees import taken_apart
from elastic_pytorch.state.source import NONE
from elastic_pytorch.state.state import ASK_FOR_FLUSH, State
from elastic_pytorch.state.step_boundary import Agreement
from elastic_pytorch.state.values.alike import Comparison
from elastic_pytorch.state.values.plain_values import PlainValues
from elastic_pytorch.state.values.registered import describe, put_back, refuse_foreign_sharding
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import Superseded

MEMORY = "memory"  # as a place


class ShardedState(State):
    """What `State` is for sharded models: each rank commits its shards to its pod's memory.

    Another pod has a copy of them. Every few minutes all ranks together write a checkpoint as well,
    from a copy while training goes on, if all containers have the memory for that. Without an
    agent, there are only the checkpoints. The arguments are those of `State`.
    """

    _FLUSH_SECONDS = 600.0
    _LOAD_INSTEAD = "after restore(), if it finds no step: if state.restore() == 0: load(model)"

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        options: StateOptions | None = None,
        /,
        **registered: Any,
    ) -> None:
        super().__init__(folder, options, **registered)
        self._path = location_of(self._folder) if self._folder else None
        self._saves_by_steps = not self._options.memory and self._options.every is not None
        self._peers: PeerMemory | None = None
        self._engine: Engine | None = None
        self._stages: list[int] = []  # of the ranks
        self._has_trained = True  # whether any rank may have a `Trained`
        self._saved, self._saved_at, self._save_began_at = NONE, time.monotonic(), 0.0
        self._save_due = False  # on all ranks alike
        self._failed_saves = 0  # in a row
        self._background = BackgroundSave()
        self._saves_group: Any = None  # for saves beside the training
        self._left = False

    def restore(self) -> int:
        """Loads the newest whole state of the pods' memory, or else the newest whole checkpoint.

        To be called by all ranks, once a group, after `init_process_group` and `fully_shard`. What
        has no state yet stays as it is. Raises what `State.restore` does, and a RuntimeError
        without a process group.
        """
        if not dist.is_initialized():
            raise RuntimeError("a sharded model is of a group: call init_process_group first")
        if self._left:
            raise RuntimeError(
                "this State is of a group that is gone: make it and its model in the in_process "
                "function"
            )
        self._begin_restore()
        # First, as the rest begins things in the group, and may fail.
        in_process.register_holder(self, keep=True)
        refuse_foreign_sharding(self._objects)
        if in_process.active():
            refuse_stale(meshes_of(self._objects))
        self._group = cpu_group()
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        group = TorchGroup(self._group)
        comparison = Comparison(self._identity, {}, self._objects, self._plain)
        parameters = describe(self._objects)
        compared, numbers = gather_parts(group, comparison.numbers, numbers_of(parameters))
        # First, as in a State, which another rank may have instead.
        comparison.refuse_different(group, compared)
        self._stages = agree_on_stages(group, parameters, numbers)
        self._exchange()
        if self._options.memory and agent_link.current() is not None and self._peers is None:
            self._peers = PeerMemory(self._name, agent_link.pod_client())
            self._commits.snapshot = self._peers.snapshot
        in_memory = known = NONE
        if self._peers is not None:
            in_memory = self._peers.form(self._objects, self._stages, self._group)
            known = self._peers.newest
        refuse_unshared(self._path, self._group, needed=in_memory == NONE)
        on_disk, generation = claim_folder(self._path, known.generation, group)
        found, where = self._read(in_memory, on_disk, generation)
        self._shared_values = PlainValues(group, {}) if self._world > 1 else None
        self._exchange()  # of what was loaded
        self._leave_unfinished()
        self._version = StateVersion(generation, self._step)
        if self._rank == 0:
            missing = ""
            if known > found:
                missing = f"; of step {known.step}, some shards are gone, or were not committed"
            log = logger.warning if missing and found == NONE else logger.info
            log("going on from step %d, found in %s%s", self._step, where, missing)
        if self._peers is not None:
            self._peers.check_room(self._local_tree())
            if found != in_memory or not self._peers.copy_restored():
                self._write()
                self._commits.settle(wait=True)
                self._peers.begin_copies(self._version)
        if self._folder and self._step != self._saved.step:
            unfinished[self] = None
        self._saved_at, self._save_due = time.monotonic(), False
        self._begin_steps()
        return self._step

    def _refuse_options(self, options: StateOptions) -> None:
        if options.initial is not None:
            raise ValueError(
                f"{type(self).__name__} takes no initial, as each rank has a part of the model: "
                f"load the weights on all ranks {self._LOAD_INSTEAD}"
            )
        if options.overlap:
            raise ValueError(
                "overlap is for models that each rank has as a whole: "
                "leave it out for a sharded one"
            )

    @property
    def has_stages(self) -> bool:
        """Whether the ranks have the stages of a pipeline, as `restore` has found."""
        return len(set(self._stages)) > 1

    def flush(self) -> bool:
        if self._path is None:
            return True
        self._take_saved(wait=True)
        return self._saved.step == self._step or self._save()

    def _leave_group(self) -> None:
        """Closes the memory for the next group's ShardedState."""
        super()._leave_group()
        self._left, self._saves_group = True, None
        self._background.take(wait=True)  # its outcome is of no use any more
        self._commits.close()
        if self._peers is not None:
            self._peers.close()
            self._peers = None

    def close(self) -> None:
        self._commits.settle(wait=True)
        super().close()
        if self._peers is not None:
            self._peers.drop()
            self._peers = None
        in_process.release_holder(self)

    def _complete_at_exit(self) -> None:
        self._counted = False
        if dist.is_initialized() and self._settle_last(stop=False) and self._agent_link is not None:
            self._agent_link.stop_process()

    def _unsaved(self) -> str:
        if self._path is None or self._saved.step == self._step:
            return ""
        return f"steps {self._saved.step + 1} to {self._step} are not saved: {ASK_FOR_FLUSH}"

    def _read(
        self, in_memory: StateVersion, on_disk: StateVersion, generation: int
    ) -> tuple[StateVersion, str]:
        if self._path is not None and in_memory < on_disk:
            template = partial(template_of, self._objects)
            found = load_sharded(
                self._path, template, stages=self._stages, group=self._group, engine=self._engine
            )
            if found is not None and found[0] > in_memory:
                self._saved = found[0]
                where = f"checkpoint {tuple(found[0])}"
                self._load(Found(found[0], found[1], generation, where))
                return found[0], where
        if self._peers is None or in_memory == NONE:
            return NONE, "the beginning"
        tree = self._peers.read(self._objects, self._group)
        self._load(Found(in_memory, tree, generation, MEMORY))
        return in_memory, MEMORY

    def _states(self) -> dict[str, Any]:
        return states_of(self._objects)

    def _exchange(self, *, all_again: bool = False) -> None:
        super()._exchange()
        self._has_trained = self._has_trained and compare_frozen(
            self._objects, self._group, all_again=all_again
        )

    def _put_back(self, states: dict[str, Any], found: Found) -> None:
        # In memory an optimizer's state is by the numbers of its parameters, as torch has it.
        options: Any = {} if found.where == MEMORY else {"load": partial(load_state, self._objects)}
        put_back(self._objects, states, found.where, **options)

    def _agreement(self) -> Agreement:
        return Agreement(self._own_numbers, self._learn)

    def _own_numbers(self) -> Sequence[int]:
        # A save that is due begins after this agreement.
        is_saved = self._save_due or self._background.version is not None
        by_time = (
            self._rank == 0 and self._path is not None and not self._saves_by_steps and not is_saved
        )
        save = int(by_time and time.monotonic() - self._saved_at >= self._flush_seconds)
        if self._peers is None:
            return (0, 0, save)
        return (-self._peers.copied, int(not self._peers.rested), save)

    def _learn(self, numbers: Sequence[int]) -> None:
        least_copied, resting, save = numbers
        if self._peers is not None:
            self._peers.agree(-least_copied, rested=not resting)
        self._save_due = self._save_due or bool(save)

    def _plain(self, tree: dict[str, Any]) -> Any:
        return taken_apart(tree)[1]

    def _commit_together(self) -> None:
        """Commits the step, unless a version is being copied and no memory is free."""
        if self._compared is None:
            self._exchange(all_again=True)
            refuse_other_values(self._objects, self._stages[self._rank], self._group)
            self._compare()
        peers = self._peers
        if peers is None:
            if self._saves_by_steps and self._path is not None:
                self._version = self._version_now()
                self._save()
            return
        if not peers.may_copy and self._boundary is not None and self._boundary.steps_are_long:
            peers.agree_now()  # an agreement some steps later would cost these
        if not peers.copying:
            if self._version.step == 0:  # an optimizer's state appears with its first step
                peers.check_room(self._local_tree())
            self._exchange()
            self._write()
            if peers.may_copy:
                peers.plan_copies(self._version)

    def _write(self) -> None:
        self._version = self._version_now()
        if (peers := self._peers) is not None:
            self._commits.write(self._version, lambda: peers.payload(self._local_tree()))

    def _local_tree(self) -> dict[str, Any]:
        """The state with this rank's shards, and optimizers as they are."""
        return self._tree_of(super()._states())

    def _flush(self, *, now: bool) -> None:
        del now
        if self._peers is not None and not self._commits.copying:
            self._peers.start_copies()
        self._take_saved(wait=self._save_due)  # rank 0's was over when it requested another one
        if self._save_due:
            self._save_due = False
            self._exchange()
            in_background = self._options.memory and self._engine is None
            if in_background and has_room_for_copy(tree := self._tree(), self._group):
                self._begin_save(tree)
            else:
                self._save()

    def _begin_save(self, tree: dict[str, Any]) -> None:
        if self._saves_group is None:
            self._saves_group = dist.new_group(backend="gloo")
        self._background.begin(
            self._version_now(), self._start_save(copy_on_cpu(tree), self._saves_group)
        )

    def _start_save(self, tree: dict[str, Any], group: Any) -> Callable[[], None]:
        assert self._path is not None
        self._save_began_at = time.monotonic()
        options: Any = {"stages": self._stages, "group": group, "engine": self._engine}
        return partial(save_sharded, self._path, self._version_now(), tree, self._keep, **options)

    def _take_saved(self, *, wait: bool) -> None:
        if (taken := self._background.take(wait=wait)) is not None:
            self._end_save(*taken)

    def _save(self) -> bool:
        self._exchange()
        version, problem = self._version_now(), None
        try:
            self._start_save(self._tree(), self._group)()
        except (OSError, Superseded) as error:
            problem = error
        self._end_save(version, problem)
        return problem is None

    def _end_save(self, version: StateVersion, problem: Exception | None) -> None:
        self._saved_at = time.monotonic()
        if problem is None:
            self._saved, self._failed_saves = version, 0
            if version.step == self._step:
                unfinished.pop(self, None)
            report_written(version.step, self._saved_at - self._save_began_at)
            return
        if not isinstance(problem, OSError | Superseded):
            raise problem
        logger.warning("step %d is not saved: %s", version.step, problem)
        self._failed_saves += 1
        if self._rank == 0:
            report_failed_saves(self._failed_saves, f"{problem}")

    def _settle_last(self, *, stop: bool) -> bool:
        """Saves the last step in pods that stay, or on the disk; returns whether the group stops.

        If it cannot be saved to the disk and nothing else has it, all ranks raise an OSError.
        """
        self._take_saved(wait=True)
        if (peers := self._peers) is not None:
            self._commits.settle(wait=True)
            peers.finish_copies()
            if self._version.step != self._step:
                self._commit_together()
                self._commits.settle(wait=True)
            agent = self._agent_link
            if stop and peers.leave(
                self._version, leaves=agent is not None and agent.leaves_group()
            ):
                unfinished.pop(self, None)
                return True
        return self._save_last(stop=stop) and (stop or self._settle_last(stop=True))

    def _save_last(self, *, stop: bool) -> bool:
        if self._path is None and stop and self._rank == 0:
            logger.warning(
                "all pods stop, and no folder is given: what is done until step %d is lost",
                self._step,
            )
        if self._path is None or self._saved.step == self._step:
            return stop
        outcome = save_last(self._save, self._group, agent=self._agent_link, stop=stop)
        if outcome is Outcome.GIVEN_UP:
            raise OSError(
                f"step {self._step} cannot be saved to {self._folder}, as the log says, "
                "and nothing else has it: free or repair the volume. "
                f"The last checkpoint is of step {self._saved.step}"
            )
        return stop or outcome is Outcome.STOPPED
