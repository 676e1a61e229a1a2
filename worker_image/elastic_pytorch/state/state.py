"""The state of a training: committed at step boundaries, restored by the next group."""

import os
import time
import weakref
from typing import Any

import torch.distributed as dist

from elastic_pytorch.group import in_process
from elastic_pytorch.group.rank_group import RankGroup, TorchGroup, cpu_group, gather_parts
from elastic_pytorch.log import logger
from elastic_pytorch.memory.gpu_copies import CudaLane
from elastic_pytorch.memory.pod_memory import PodMemory, leave, pod_number, writes_for_its_pod
from elastic_pytorch.memory.state_names import names
from elastic_pytorch.pod import agent_link
from elastic_pytorch.state.commit_interval import CommitInterval
from elastic_pytorch.state.commits import Commits
from elastic_pytorch.state.contents import Contents
from elastic_pytorch.state.last_commits import (
    LAST_FLUSH_SECONDS,
    LastCommit,
    give_back,
    given_up,
    last_commits,
    saving,
    unfinished,
)
from elastic_pytorch.state.options import Options as StateOptions
from elastic_pytorch.state.restore import Search, load_initial
from elastic_pytorch.state.source import NONE
from elastic_pytorch.state.step_boundary import (
    NO_AGREEMENT,
    Agreement,
    StepBoundary,
    any_rank,
    start_maximum,
    turns,
)
from elastic_pytorch.state.step_reports import StepReports
from elastic_pytorch.state.values.alike import Comparison, refuse_grown_apart
from elastic_pytorch.state.values.per_rank import PerRank, exchange_all
from elastic_pytorch.state.values.plain_values import PlainValues
from elastic_pytorch.state.values.registered import Registered, describe, refuse_sharded
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.places import usable
from elastic_pytorch.storage.retention import what_to_keep
from elastic_pytorch.torch_fixes import destroy_deadlock

ASK_FOR_FLUSH = (
    "call flush() on all ranks at the end of the training, before the process group is destroyed"
)


class State(Contents):
    """All that a training must not lose: committed each step, and restored by each group.

    Objects with a `state_dict()` and a `load_state_dict()` are committed as such. Any other value
    is an attribute of the state: `State(..., best_loss=9.9)` makes `state.best_loss`. Rank 0's
    values count: all ranks have them after the next commit.

    With a sharded model (FSDP2's fully_shard, before this), it is a `ShardedState`. A State without
    a folder and a name is recognized after a restart by its number in the script.

    Args:
        folder: of the checkpoints, on a volume that all pods share; or a URL, s3:// or
            gs://BUCKET/PREFIX; None: there are none.
        options: see `State.Options`.
        registered: what to commit, by names of your choice.

    Raises:
        ValueError: an argument is invalid.
        ImportError: object storage needs obstore, which is not installed.
        RuntimeError: a State of this process, which is not closed, has this folder and name.
    """

    Options = StateOptions
    _FLUSH_SECONDS = 5.0
    _LANE = CudaLane

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        options: StateOptions | None = None,
        /,
        **registered: Any,
    ) -> None:
        self._options = options = StateOptions() if options is None else options
        super().__init__(registered)
        self._refuse_options(options)
        self._keep = what_to_keep(options.keep, options.keep_every_steps)
        # Steps after which training may be done.
        self._ends = set[int]() if options.total_steps is None else {options.total_steps}
        destroy_deadlock.install()  # the agent has done so, but not plain torchrun
        self._identity = names.give(usable(folder), options.name)
        self._folder = self._identity.folder
        self._name = self._identity.memory
        self._interval = CommitInterval(options.every)
        self._flush_seconds = (
            self._FLUSH_SECONDS if options.flush_seconds is None else options.flush_seconds
        )
        self._commits = Commits(
            self._interval, self._LANE(), self._objects.values(), overlap=options.overlap
        )
        self._version = NONE  # of the last commit
        self._memory: PodMemory | None = None
        self._leave: weakref.finalize[Any, Any] | None = None
        self._reports = StepReports(self._name, self._interval)
        self._boundary: StepBoundary | None = None
        self._closed = self._counted = False  # counted: a step that is not completed yet
        self._compared: int | None = None  # the step of the group's last comparison
        self._agent_link: agent_link.AgentLink | None = None
        self._asked_at = float("-inf")

    @classmethod
    def _kind_for_shards(cls) -> "type[Registered]":
        from elastic_pytorch.state.sharded.sharded_state import ShardedState  # noqa: PLC0415 # it is a State, and takes long to import

        return ShardedState if cls is State else cls

    @property
    def step(self) -> int:
        """How many steps are done."""
        return self._step

    def restore(self) -> int:
        """Loads the newest state of the group's pods, or else the newest checkpoint.

        To be called by all ranks, once for each group, after `init_process_group` and before
        DistributedDataParallel. If there is nothing to restore, all ranks get rank 0's initial
        state, with what `initial` loads.

        Returns:
            How many steps are done.

        Raises:
            OSError: the checkpoint folder cannot be read, or the pod's agent does not answer.
            RuntimeError: the state does not fit the registered objects; or these are not the same
                on all ranks, or have been sharded since this State was made; or `initial` failed.
        """
        self._begin_restore()
        refuse_sharded(self._objects, "shard it before State is made")
        self._group = cpu_group()
        group = TorchGroup(self._group) if dist.is_initialized() else RankGroup()
        self._rank, self._world = group.rank, dist.get_world_size() if dist.is_initialized() else 1
        comparison = Comparison(self._identity, describe(self._objects), self._objects, self._plain)
        self._find_memory()
        self._commits.settle(wait=True)
        search = Search(group, self._memory, self._folder)
        ended = given_up() if self._rank == 0 else []
        compared, numbers, searches = gather_parts(
            group, comparison.numbers, [len(ended)], search.numbers
        )
        comparison.refuse_different(group, compared)
        exchange_all(self._objects.values(), self._group)
        self._leave_unfinished()
        give_back(group, ended, numbers[0][0])
        found = search.find(searches, self._begin)
        self._load(found)
        if found.shared:
            group.gather([0])  # all have read what they share
        self._version = StateVersion(found.generation, self._step)
        if self._rank == 0:
            logger.info("going on from step %d, found in %s", self._step, found.where)
        exchange_all(self._objects.values(), self._group)
        self._write()
        self._commits.settle(wait=True)
        self._shared_values = PlainValues(group, self._values) if self._world > 1 else None
        self._begin_steps()
        return self._step

    def commit(self, *, loss: Any = None) -> None:
        """Ends a step: keeps its outcome, reports it, and stops here if the group changes.

        Every rank must call it after every step. It advances a registered `ElasticSampler`. An
        epoch's last step is kept when `epochs` or `part` goes on: what follows it belongs to it.

        Args:
            loss: the loss of the step, to be reported; anything that float() takes.

        Raises:
            RuntimeError: a peer is lost; or `restore` has not been called; or another State is
                committed in turns with this one.
            GroupChanged: the group changes, in a function that `in_process` decorates: it is called
                again.
        """
        turns.take(self)
        self._end_step(loss=loss)
        if not any(getattr(each, "_epoch_is_over", False) for each in self._objects.values()):
            turns.complete()

    def _end_step(self, *, loss: Any = None) -> None:
        """The first half of `commit`; `_complete_step` does the rest."""
        turns.complete()  # of a loop that was left
        if self._boundary is None:
            raise RuntimeError("call restore() once the group is formed, before the first commit()")
        self._commits.settle(wait=False)
        self._interval.end_step()
        self._step += 1
        self._advance()
        self._counted = True
        turns.count(self)
        if self._folder:
            unfinished[self] = None
        total = max(self._ends, default=None)
        self._reports.end_step(self._step, total, loss, rank=self._rank)

    def _complete_step(self) -> None:
        boundary, agent = self._boundary, self._agent_link
        if boundary is None or not self._counted:
            return
        self._counted = False
        last = self._step in self._ends or any(
            getattr(each, "finished", False) for each in self._objects.values()
        )
        if due := last or self._interval.due(self._step, self._version.step):
            self._commit_together()
        self._commits.end_step()
        stop = boundary.reached(lambda: agent is not None and agent.wanted())
        if stop:
            if not due:
                self._commit_together()
            self._compare()
        if stop or last:
            stop = self._settle_last(stop=stop)
        self._flush(now=stop or last)
        if stop and agent is not None:
            if in_process.active():
                raise in_process.GroupChanged(self._step, boundary.meet)
            agent.stop_process()

    def _leave_group(self) -> None:
        """Called before `in_process` destroys the process group."""
        self._boundary = self._shared_values = self._group = None
        self._leave_unfinished()  # the step may not have been done as a whole
        self._commits.settle(wait=True)  # the next State of this name writes to the same memory

    def close(self) -> None:
        """Ends this State, and waits as `flush` does; the process continues with another training.

        After that another State may have its folder and name, and continues from it. A State
        without a folder loses at once all that was committed.
        """
        if self._closed:
            return
        self.flush()
        self._closed, self._boundary = True, None
        self._leave_unfinished()
        self._commits.close()
        if self._leave is not None:
            self._leave()
            self._memory = None
        # Without an agent, the next State of this name reads the folder into a new memory.
        if self._leave is not None and (agent_link.current() is None or not self._folder):
            if (commit := last_commits.get(self._name)) and commit.written(self._name):
                del last_commits[self._name]
            agent_link.pod_client().drop(self._name)
        if not self._folder:
            names.forget(self._name)
        names.free(self._identity)

    def flush(self) -> bool:
        """Saves the last step, and waits until it is on the disk.

        To be called by all ranks, after `commit`. At the end of a script this happens by itself.

        Returns:
            Whether it is on the disk, on all ranks alike; False: it cannot be written, or not in
            ten minutes, and the log says why.

        Raises:
            RuntimeError: a peer is lost.
        """
        # No step was done since it was made, or closed.
        if not self._folder or self._boundary is None:
            return True
        if self._version.step != self._step:
            self._commit_together()
        self._commits.settle(wait=True)
        self._flush(now=True)
        commit, written = last_commits.get(self._name), True
        with saving():
            if commit is not None:
                drained = agent_link.pod_client().drain(LAST_FLUSH_SECONDS, self._name)
                written = drained and commit.written(self._name)
                self._reports.report_failed_writes()
            return not any_rank(not written, self._group)

    def _complete_at_exit(self) -> None:
        if self._objects_of(PerRank):
            if self._world > 1 and not dist.is_initialized():
                return
            exchange_all(self._objects.values(), self._group)
        self._write()

    def _unsaved(self) -> str:
        if self._rank or not self._folder or self._version.step == self._step:
            return ""
        return f"steps {self._version.step + 1} to {self._step} are not committed: {ASK_FOR_FLUSH}"

    def _expect_end(self, step: int) -> None:
        """Has the last step of a loop committed and written like `total_steps`."""
        if self._options.total_steps is not None:
            raise ValueError(
                "the training's end is given twice: leave total_steps out of the State's options, "
                "as max_steps has it"
            )
        self._ends.add(step)

    def _leave_unfinished(self) -> None:
        self._counted, self._compared = False, None
        turns.end(self)
        unfinished.pop(self, None)

    def _begin(self) -> dict[str, Any]:
        """Returns the initial state, or the current one without memory and folder."""
        if (initial := self._options.initial) is not None and self._version.generation == 0:
            load_initial(initial)
        return self._tree()

    def _begin_restore(self) -> None:
        if self._closed:
            raise RuntimeError("this State is closed: make another one to go on from it")
        turns.complete()  # of a training before this one

    def _begin_steps(self) -> None:
        in_process.register_holder(self)
        self._interval.restart()
        group = self._group
        self._boundary = StepBoundary(
            lambda numbers: start_maximum(numbers, group), self._interval, self._agreement()
        )
        self._agent_link = agent_link.current()
        if (agent := self._agent_link) is not None:
            agent.cooperate(in_process=in_process.active())

    def _agreement(self) -> Agreement:
        return NO_AGREEMENT

    def _find_memory(self) -> None:
        has_agent = agent_link.current() is not None
        if not (has_agent or (self._rank == 0 and self._folder)):
            return
        if self._memory is None:
            self._memory = PodMemory(self._name, agent_link.pod_client())
        # Both may change from one group to the next.
        self._memory.pod = pod_number() if has_agent else None
        self._memory.keeps = writes_for_its_pod()
        self._memory.open()
        if self._leave is None and self._memory.snapshot is not None:
            self._commits.snapshot = self._memory.snapshot
            self._leave = weakref.finalize(self, leave, self._identity, self._memory.snapshot)
            self._leave.atexit = False

    def _settle_last(self, *, stop: bool) -> bool:
        """Returns whether the group stops."""
        self._commits.settle(wait=True)
        return stop

    def _compare(self) -> None:
        """Called after a group's first step and at its stop. Collective."""
        if self._world > 1 and self._compared != self._step:
            refuse_grown_apart(TorchGroup(self._group), self._objects, self._plain)
        self._compared = self._step

    def _commit_together(self) -> None:
        if self._compared is None:
            self._compare()
        self._exchange()
        self._write()

    def _write(self) -> None:
        self._version = self._version_now()
        if writes_for_its_pod():
            self._commits.write(self._version, self._tree)
        if self._rank == 0 and self._folder and self._commits.snapshot is not None:
            last_commits[self._name] = LastCommit(self._version, self._folder, self._keep)
        else:  # in a new group in this process, another one may be rank 0
            last_commits.pop(self._name, None)
        unfinished.pop(self, None)

    def _version_now(self) -> StateVersion:
        return StateVersion(self._version.generation, self._step)

    def _flush(self, *, now: bool) -> None:
        commit = last_commits.get(self._name)
        if commit is None or (commit.requested and not now) or self._commits.copying:
            return
        if now or time.monotonic() - self._asked_at >= self._flush_seconds:
            self._asked_at = time.monotonic()
            commit.flush(self._name, now=now)
