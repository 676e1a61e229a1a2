"""Changes the group within the living process, instead of starting the script again."""

import contextlib
import gc
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from elastic_pytorch.group.group_watch import GroupWatch, is_peer_loss
from elastic_pytorch.log import logger
from elastic_pytorch.memory.state_names import names
from elastic_pytorch.pod import agent_link, preparation
from elastic_pytorch.pod.planned_stop import script_end
from elastic_pytorch.torch_fixes import gloo_sockets, lost_operations, store_connect

Result = TypeVar("Result")

# For ProcessGroupNCCL's groups, which are aborted from here. Its watchdog must not end the process
# when a peer is lost, nor sleep for a minute before it ends, which the end of the group waits for.
# The heartbeat monitor checks each second whether the watchdog has timed out, and then sleeps for
# eight minutes. Here it checks as rarely.
_NCCL_VARIABLES = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
    "TORCH_NCCL_COORD_CHECK_MILSEC": "480000",
}
# What "nccl" means, decided at its first group. Since torch 2.15 it is ProcessGroupNCCL2, whose
# abort and watchdog are not tested with this module.
_CHOICE_OF_NCCL, _PROVEN_NCCL = "TORCH_DIST_USE_NCCL2", "0"


class GroupChanged(BaseException):
    """Raised by `State.commit` at the boundary where the group stops; `meet` waits for all ranks.

    It is not an Exception, so that scripts do not handle it as an error.
    """

    def __init__(self, step: int, meet: Callable[[], None]) -> None:
        super().__init__(f"the group has stopped after step {step}")
        self.meet = meet


class GroupAborted(BaseException):
    """Raised by `State.commit` if the group was aborted in the step: tensors may hold anything."""


class Holder(Protocol):
    """Refers to a process group from one call to the next."""

    def _leave_group(self) -> None: ...


_depth = 0
_watch: GroupWatch | None = None
_holders: "weakref.WeakSet[Holder]" = weakref.WeakSet()
_kept: set[Holder] = set()


def register_holder(holder: Holder, *, keep: bool = False) -> None:
    """Registers an object that must drop its group when that is left, as it keeps the group alive.

    A holder to `keep` lives until then without the script, to end what it has begun in the group.
    """
    _holders.add(holder)
    if keep and active():
        _kept.add(holder)


def release_holder(holder: Holder) -> None:
    _kept.discard(holder)


def active() -> bool:
    """Whether this process is in a function that is called again when the group changes."""
    return _depth > 0


def check() -> None:
    """Called when tensors are complete; raises GroupAborted if they may not be."""
    if _watch is not None and _watch.broken:
        raise GroupAborted("the group was aborted, as a peer is lost")


def in_process(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorates a function to be called again, in the same process, when the group changes.

    The function does all that depends on the group: `init_process_group`, `State.restore`,
    DistributedDataParallel, and the training. At a planned change, it ends at a step boundary, in
    `State.commit`. When a peer is lost, the group is aborted, and the steps since the last commit
    are lost.

    Without an agent of elastic-pytorch (plain torchrun, a notebook), it is called once, and errors
    propagate.

    Raises:
        RuntimeError: a process group exists already, which the function could not make again.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Result:
        global _depth  # noqa: PLW0603 - of this process
        agent = agent_link.current()
        if agent is None or active():
            return function(*args, **kwargs)
        if dist.is_initialized():
            raise RuntimeError(
                "call init_process_group inside of the function that in_process decorates: "
                "it makes each group"
            )
        preparation.join(in_process=True)
        os.environ.update(_NCCL_VARIABLES)
        _choose_nccl()
        _depth += 1
        mark = names.mark()
        try:
            while True:
                # A State that the function makes is the same one each time.
                names.go_back(mark)
                lost = ""
                with _watching() as watch:
                    try:
                        result = function(*args, **kwargs)
                        check()
                        return result
                    except GroupChanged as changed:
                        lost = _meet(changed)
                    except GroupAborted as aborted:
                        lost = f"DistBackendError: {aborted}"
                    except Exception as error:
                        if not watch.broken and not is_peer_loss(error):
                            raise
                        lost = f"{type(error).__name__}: {error}"
                    # Here no error refers to the group any more.
                    if not lost:
                        # Reported first: if leaving hangs, the agent starts another process.
                        agent.stop_at_boundary()
                    _leave_group(broken=bool(lost))
                with script_end.at_sigterm():
                    if lost:
                        logger.info("a peer is lost: %s", lost.partition("\n")[0])
                        agent.lose_peer(lost)
                    else:
                        agent.leave()
                    os.environ.update(agent.wait_for_go())
        finally:
            _depth -= 1
            _kept.clear()

    return call


@contextlib.contextmanager
def _watching() -> Iterator[GroupWatch]:
    global _watch  # noqa: PLW0603 - of this process
    store_connect.enter()
    _watch = GroupWatch(_abort, _cut)
    try:
        yield _watch
    finally:
        _watch.stop()
        _watch = None


def _choose_nccl() -> None:
    if _CHOICE_OF_NCCL in os.environ or not hasattr(distributed_c10d, "ProcessGroupNCCL2"):
        return
    os.environ[_CHOICE_OF_NCCL] = _PROVEN_NCCL
    if torch.cuda.is_available():
        logger.info(
            "in_process uses ProcessGroupNCCL for nccl: ProcessGroupNCCL2, torch's new default, "
            "has not been tested with it; set %s=1 to use it",
            _CHOICE_OF_NCCL,
        )


def _meet(changed: GroupChanged) -> str:
    """Waits for all ranks before any of them leaves; returns the error, or an empty text."""
    try:
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        changed.meet()
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _leave_group(*, broken: bool) -> None:
    if broken:
        _abort()
    for holder in list(_holders):
        holder._leave_group()
    _kept.clear()
    # A DistributedDataParallel is full of cycles, and hooks into the model while it exists.
    gc.collect()
    if dist.is_initialized():
        backends = lost_operations.gloo_backends() if broken else []
        gloo_sockets.cut()  # gloo closes open connections one by one, at 10 ms each
        dist.destroy_process_group()
        if not lost_operations.end(backends):
            logger.info("an operation of the group has not ended; it is left to gloo's time-out")
    # Ranks meet only if they agree on the group's name, the number of groups before it. A new
    # process begins with 0. So does destroy_process_group, unless the group was never formed.
    distributed_c10d._world.group_count = 0
    # A script without sharded tensors need not load their modules. Torch 2.4 has only the second.
    if not sys.modules.keys().isdisjoint({"torch.distributed.tensor", "torch.distributed._tensor"}):
        from elastic_pytorch.group.mesh_caches import forget_meshes  # noqa: PLC0415

        forget_meshes()


def _abort() -> None:
    """Aborts all collectives of this process, and the forming of a group. Safe in any thread."""
    _cut()
    groups = dict(distributed_c10d._world.pg_names)  # a copy: another thread may add a group
    # As torch's _abort_process_group.
    for group in sorted(groups, key=lambda each: groups[each], reverse=True):
        for each in _with_abort(group):
            try:
                each.abort()
            # It has been aborted already, or this release of torch cannot abort gloo's.
            except Exception as error:
                logger.debug("a group is not aborted: %s", error)


def _cut() -> None:
    """Ends waits for connections, without a reference to a group, which would keep it alive."""
    store_connect.leave()
    gloo_sockets.cut()


def _with_abort(group: Any) -> list[Any]:
    """The group in newer releases of torch, its backends since 2.6, and nothing before."""
    if hasattr(group, "abort"):
        return [group]
    backends = [group._get_backend(device) for device in group._device_types]
    return [backend for backend in backends if hasattr(backend, "abort")]
