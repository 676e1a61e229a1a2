"""The state of a training: committed at step boundaries, and found again by whatever group comes next."""

import atexit
import contextlib
import hashlib
import os
import signal
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from elastic_pytorch import checkpoint_folder, group_change, randomness, rejoin
from elastic_pytorch.boundary import Boundary, start_maximum
from elastic_pytorch.log import logger
from elastic_pytorch.newest_state import Alone, Group, TorchGroup, find_newest
from elastic_pytorch.progress import report
from elastic_pytorch.snapshot import Snapshot
from elastic_pytorch.stamp import Stamp

TELL_SECONDS = 0.1  # between two reports of more than the step: a loss may have to wait for a GPU
LAST_FLUSH_SECONDS = 600.0  # for the last checkpoint of a training that is done
LAYOUT = 1


class State:
    """All that a training must not lose: registered once, committed each step, restored by each group.

    What has a `state_dict()` and a `load_state_dict()` is committed as such: model, optimizer, scheduler, scaler, sampler. Any other value
    is kept as an attribute of the state: `State(..., best_loss=9.9)` makes `state.best_loss`, to be read and set. The states of the random
    number generators are part of it by themselves.

    A commit is a copy in the pod's memory, which outlives the process; each pod of the group has one. Every few seconds rank 0's is written
    to the checkpoint folder by another process. So a step is lost with a worker or a node only if it was not committed yet, and a few
    seconds are lost only when all of the group's pods go at once.

    Args:
        folder: of the checkpoints, best on a volume that all pods share; None: there are none.
        keep: how many checkpoints to keep there.
        every: commit each so many steps. A stop at a boundary always commits.
        flush_seconds: the least time between two checkpoints on disk; 0: as often as they can be written.
        total_steps: at which step training is done, for the progress that is reported.
        registered: what to commit, by names of your choice.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        *,
        keep: int = 2,
        every: int = 1,
        flush_seconds: float = 5.0,
        total_steps: int | None = None,
        **registered: Any,
    ) -> None:
        if keep < 1 or every < 1 or flush_seconds < 0:
            raise ValueError("keep and every must be at least 1, and flush_seconds not negative")
        taken = [name for name in registered if hasattr(type(self), name) or name.startswith("_")]
        if taken:
            raise ValueError(f"{', '.join(taken)}: State has a use of its own for this name")
        self._objects = {name: _unwrap(each) for name, each in registered.items() if _is_stateful(each)}
        self._values = {name: each for name, each in registered.items() if name not in self._objects}
        self._folder = "" if folder is None else os.fspath(Path(folder).absolute())
        self._keep, self._every, self._flush_seconds, self._total = keep, every, flush_seconds, total_steps
        self._name = "state-" + hashlib.sha256(self._folder.encode()).hexdigest()[:16]  # in the pod's memory
        self._step = 0
        self._stamp = Stamp(0, 0)  # of the last commit
        self._rank, self._world = 0, 1
        self._snapshot: Snapshot | None = None
        self._boundary: Boundary | None = None
        self._agent: group_change.GroupChange | None = None
        self._asked_at = self._told_at = float("-inf")
        self._trouble = ""

    @property
    def step(self) -> int:
        """How many steps are done."""
        return self._step

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(f"nothing of the name {name} is registered with this State")
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        values = self.__dict__.get("_values", {})
        if name in values:
            values[name] = value
        elif name.startswith("_"):
            super().__setattr__(name, value)
        else:
            raise AttributeError(f"register {name} first: State(..., {name}=...)")

    def restore(self) -> int:
        """Brings what is registered to the newest state that any of the group's pods holds, or else to the newest checkpoint.

        To be called by all ranks, once for each group, after `init_process_group` and before DistributedDataParallel. If there is nothing
        to restore, all ranks get what rank 0 has begun with.

        Returns:
            How many steps are done.

        Raises:
            OSError: the checkpoint folder cannot be read.
            RuntimeError: what was found does not fit what is registered.
        """
        if is_sharded(self._objects):
            raise RuntimeError("no rank has all of a sharded model: use ShardedState in place of State")
        gloo = cpu_group()
        group: Group = TorchGroup(gloo) if dist.is_initialized() else Alone()
        self._rank, self._world = group.rank, dist.get_world_size() if dist.is_initialized() else 1
        self._find_memory()
        found = find_newest(group, self._snapshot, self._folder, self._tree() if group.rank == 0 else None)
        self._load(found.tree, found.where)
        self._stamp = Stamp(found.generation, self._step)
        if self._rank == 0:
            self._claim()
            logger.info("going on from step %d, found in %s", self._step, found.where)
        self._write()
        self._begin_steps(gloo)
        return self._step

    def commit(self, *, loss: Any = None) -> None:
        """Ends a step: keeps its outcome, reports it, and stops here if the group is to change. Every rank must call it after every step.

        Moves a registered `ElasticSampler` on by a batch.

        Args:
            loss: of the step, to be reported; whatever float() takes.

        Raises:
            RuntimeError: a peer is lost; or `restore` has not been called.
            GroupChanged: in a function decorated with `in_process`, which has it called again.
        """
        if self._boundary is None:
            raise RuntimeError("call restore() once the group is formed, before the first commit()")
        self._step += 1
        for each in self._objects.values():
            if (advance := getattr(each, "advance", None)) is not None:
                advance()
        last = self._step == self._total
        if due := last or self._step % self._every == 0:
            self._write()
        agent = self._agent
        stop = self._boundary.reached(lambda: agent is not None and agent.wanted())
        if stop and not due:
            self._write()
        self._flush(now=stop or last)
        self._report(loss)
        if stop and agent is not None:
            if rejoin.active():
                raise rejoin.GroupChanged(self._step, self._boundary.meet)
            agent.park(self._step)
            with contextlib.suppress(ValueError):  # not the main thread
                # All is kept: a handler that would save something has nothing to do.
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            while True:  # until the agent ends this process: its successor goes on from here
                agent.wait_for_go()

    def leave_group(self) -> None:
        """Lets go of the process group. To be called before it is destroyed and made anew in the same process; `in_process` does."""
        self._boundary = None

    def flush(self, timeout_seconds: float = LAST_FLUSH_SECONDS) -> bool:
        """Waits until the last commit is on disk. At its end, a script does so by itself.

        Returns:
            Whether it is; False: the time is over, or it cannot be written, which the log tells.
        """
        if self._rank != 0 or not self._folder or self._snapshot is None:
            return True
        self._flush(now=True)
        done = group_change.link().drain(timeout_seconds)
        self._complain()
        return done

    def _tree(self) -> dict[str, Any]:
        return {
            "layout": LAYOUT,
            "step": self._step,
            "objects": self._states(),
            "values": self._values,
            "random": randomness.capture(self._rank, self._world),
        }

    def _load(self, tree: dict[str, Any], where: str) -> None:
        if tree.get("layout") != LAYOUT:
            raise RuntimeError(f"{where} is of another release's layout: {tree.get('layout')}")
        self._put_back(tree["objects"], where)
        self._values.update({name: value for name, value in tree["values"].items() if name in self._values})
        self._step = tree["step"]
        randomness.put_back(tree["random"], self._rank, self._world)

    def _states(self) -> dict[str, Any]:
        return {name: each.state_dict() for name, each in self._objects.items()}

    def _put_back(self, states: dict[str, Any], where: str) -> None:
        for name, each in self._objects.items():
            if name not in states:
                logger.warning("%s has no %s: it stays as it is", where, name)
                continue
            if isinstance(each, torch.optim.Optimizer):
                each.state.clear()  # a GPU may not have the room for both the old one and the new one
            try:
                each.load_state_dict(states[name])
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception as error:
                raise RuntimeError(f"{where} does not fit the {name} of this script: {error}") from error
            if hasattr(each, "param_groups") and hasattr(each, "zero_grad"):
                each.zero_grad(set_to_none=True)  # what a step that was broken off has left

    def _begin_steps(self, gloo: Any) -> None:
        rejoin.hold(self)
        if dist.is_initialized():
            self._boundary = Boundary(lambda numbers: start_maximum(numbers, gloo))
        else:
            self._boundary = Boundary(lambda _: _Done())
        self._agent = group_change.agent()
        if (agent := self._agent) is not None:
            agent.cooperate(in_process=rejoin.active())

    def _find_memory(self) -> None:
        """Takes over the pod's memory of the state, or makes it."""
        has_agent = group_change.agent() is not None
        if self._snapshot is not None or not (has_agent or (self._rank == 0 and self._folder)):
            return
        link = group_change.link()
        descriptor = link.fetch(self._name)
        if descriptor is not None:
            try:
                self._snapshot = Snapshot(descriptor)
            except ValueError as error:
                os.close(descriptor)
                logger.warning("the pod's memory of the state is of no use: %s", error)
        if self._snapshot is None and writes_for_its_pod():
            self._snapshot = Snapshot.create(self._name)
            link.hold(self._name, self._snapshot.fd)
        if self._snapshot is not None:
            weakref.finalize(self, self._snapshot.close).atexit = False

    def _write(self) -> None:
        self._stamp = Stamp(self._stamp.generation, self._step)
        if self._snapshot is not None and writes_for_its_pod():
            self._snapshot.write(self._stamp, self._tree(), check=rejoin.check)
        if self._rank == 0 and self._folder and self._snapshot is not None:
            _last_commits[self._name] = _LastCommit(self._stamp, self._folder, self._keep)
        else:  # in a group formed anew in this process, another one may be rank 0
            _last_commits.pop(self._name, None)

    def _claim(self) -> None:
        if not self._folder:
            return
        try:
            checkpoint_folder.claim(self._folder, self._stamp.generation)
        except OSError as error:
            logger.warning("cannot write to %s: %s; training goes on without checkpoints", self._folder, error)

    def _flush(self, *, now: bool) -> None:
        commit = _last_commits.get(self._name)
        if commit is None or commit.asked:
            return
        moment = time.monotonic()
        if now or moment - self._asked_at >= self._flush_seconds:
            self._asked_at = moment
            commit.flush(self._name)

    def _report(self, loss: Any) -> None:
        moment = time.monotonic()
        if moment - self._told_at < TELL_SECONDS and self._step != self._total:
            report(step=self._step)
            return
        self._told_at = moment
        if isinstance(loss, torch.Tensor):
            loss = loss.detach()
        flushed = None
        if self._rank == 0 and self._folder and self._snapshot is not None:
            flushed = group_change.link().flushed()
            self._complain()
        report(
            step=self._step,
            total=self._total,
            loss=loss,
            checkpoint_step=flushed.step if flushed else None,
        )

    def _complain(self) -> None:
        trouble = group_change.link().trouble()
        if trouble and trouble != self._trouble:
            logger.warning("no checkpoint: %s; training goes on", trouble)
        self._trouble = trouble


@dataclass(slots=True)
class _LastCommit:
    """What is to be on disk at the end: outlives its State, which a script lets go of when its function returns."""

    stamp: Stamp
    folder: str
    keep: int
    asked: bool = False

    def flush(self, name: str) -> None:
        if not self.asked:
            self.asked = True
            group_change.link().flush(name, self.stamp, self.folder, self.keep)


_last_commits: dict[str, _LastCommit] = {}  # by their names in the pod's memory; only of rank 0


@atexit.register
def _flush_last_commits() -> None:
    """Has them brought to the disk. An agent sees to it, so that how this process has ended is known at once."""
    for name, commit in _last_commits.items():
        commit.flush(name)
    if _last_commits and group_change.agent() is None and not group_change.link().drain(LAST_FLUSH_SECONDS):
        logger.warning("the last commit is not on disk: %s", group_change.link().trouble() or "it took too long")


def writes_for_its_pod() -> bool:
    """Whether this process keeps the state for its pod. Not by LOCAL_RANK: torchrun's virtual-local-rank makes that 0 for all."""
    variables = os.environ
    return int(variables.get("RANK", "0")) % int(variables.get("LOCAL_WORLD_SIZE", "1")) == 0


class _Done:
    """An agreement of a single process."""

    def wait(self) -> None:
        """Is over at once."""


def _is_stateful(each: object) -> bool:
    return hasattr(each, "state_dict") and hasattr(each, "load_state_dict")


def _unwrap(each: Any) -> Any:
    return each.module if isinstance(each, DistributedDataParallel) else each


def is_sharded(registered: dict[str, Any]) -> bool:
    """Whether a model among what is registered is sharded over the ranks."""
    modules = (each for each in registered.values() if isinstance(each, torch.nn.Module))
    # By its name: importing what defines it takes long, and who has no sharded model needs none of it.
    return any(type(parameter).__name__ == "DTensor" for module in modules for parameter in module.parameters())


def cpu_group() -> Any:
    """The default group (None) if it can send CPU tensors, else one beside it that can. Collective."""
    if not dist.is_initialized() or "gloo" in str(dist.get_backend()):
        return None
    return dist.new_group(backend="gloo")
