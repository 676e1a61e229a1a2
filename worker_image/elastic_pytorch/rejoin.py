"""Changing the group within the living process, instead of starting the script anew.

A function that is decorated so is called again when the group has changed: with a new process group, and with all that its `State` has
committed. Whatever it made before the change, such as the DistributedDataParallel of the old group, is gone by then.
"""

import contextlib
import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Protocol, TypeVar

import torch.distributed as dist

from elastic_pytorch import gloo_sockets, group_change
from elastic_pytorch.log import logger
from elastic_pytorch.peer_loss import is_peer_loss
from elastic_pytorch.state_names import names

Result = TypeVar("Result")


class GroupChanged(BaseException):
    """Raised by `State.commit` at the boundary at which the group stops. Not an Exception: no script takes it for an error.

    Args:
        step: how many steps are done.
    """

    def __init__(self, step: int) -> None:
        super().__init__(f"the group has stopped after step {step}")
        self.step = step


class Holder(Protocol):
    """What holds on to a process group from one call to the next."""

    def leave_group(self) -> None:
        """Lets go of it."""


_depth = 0
_holders: "weakref.WeakSet[Holder]" = weakref.WeakSet()


def hold(holder: Holder) -> None:
    """Has something told when the group is left: a group is only gone when nothing refers to it any more."""
    _holders.add(holder)


def active() -> bool:
    """Whether this process is in a function that can be called again when the group changes."""
    return _depth > 0


def in_process(function: Callable[..., Result]) -> Callable[..., Result]:
    """Has a function called again, in the same process, when the group changes.

    The function does all that depends on the group: `init_process_group` (or it is called with a group, which then is made anew for it with
    the same backend), `State.restore`, DistributedDataParallel, and the training. It may be called any number of times. It is called again

    - when the group was told to change and all ranks have stopped at the same step boundary, in `State.commit`;
    - when a peer is lost, which its collectives raise: it loses the steps since the last commit then, one at most if it commits each step.

    Where no agent of elastic-pytorch runs the script (plain torchrun, a notebook) it is called once, and errors go their way.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Result:
        global _depth  # noqa: PLW0603 - of this process
        agent = group_change.agent()
        if agent is None or active():
            return function(*args, **kwargs)
        gloo_sockets.install()
        backend = dist.get_backend() if dist.is_initialized() else None
        _depth += 1
        mark = names.mark()
        try:
            while True:
                names.go_back(mark)  # a State that the function makes is the same one each time
                lost: str | None = None
                step = 0
                try:
                    return function(*args, **kwargs)
                except GroupChanged as changed:
                    step = changed.step
                except Exception as error:
                    if not is_peer_loss(error):
                        raise
                    lost = f"{type(error).__name__}: {error}"
                # Told when the group has been left: an agent whose worker hangs in there starts it anew.
                _leave_group(broken=lost is not None)
                if lost is None:
                    agent.park(step)
                else:
                    logger.info("a peer is lost: %s", lost.partition("\n")[0])
                    agent.lose_peer(lost)
                with _ended_by_sigterm():
                    os.environ.update(agent.wait_for_go())
                if backend is not None:
                    dist.init_process_group(backend)
        finally:
            _depth -= 1

    return call


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """All is kept: a handler of the script's has nothing to save, and one that only notes the signal would have it waited for."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _leave_group(*, broken: bool) -> None:
    """Takes the old group down, with whatever still refers to it."""
    if broken:
        gloo_sockets.cut()
    for holder in list(_holders):
        holder.leave_group()
    gc.collect()  # a DistributedDataParallel is full of cycles, and hooks into the model for as long as it is there
    if dist.is_initialized():
        dist.destroy_process_group()
