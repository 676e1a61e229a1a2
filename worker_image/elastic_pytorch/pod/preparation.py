"""Lets a script start before its group exists, and wait where it first depends on the group.

Until the group exists, `os.environ` waits where the script reads, writes or lists one of the
group's variables. C code and programs that inherit the environment read past it.
"""

import os
import sys
import threading
from collections.abc import Iterator

from elastic_pytorch.pod import agent_link
from elastic_pytorch.pod.group_variables import GROUP_VARIABLES
from elastic_pytorch.pod.planned_stop import script_end

PREPARING = "ELASTIC_PYTORCH_PREPARING"  # set by the agent for a process without a group
# These read or list the environment for settings of their own, or for a compiler that they start.
# Lightning does so when it is imported, for the rank in its messages, which `join` sets later.
_NEED_NO_GROUP = (
    "ctypes.util.",
    "fsspec.config.",
    "lightning.fabric.utilities.rank_zero.",
    "lightning_fabric.utilities.rank_zero.",
    "networkx.utils.backends.",
    "platform.",
    "torch._inductor.",
    "torch.utils.cpp_extension.",
    "tqdm.utils.",
)
_LIGHTNING = "lightning_utilities.core.rank_zero"
_BETWEEN = ("os", "_collections_abc", "collections.abc", __name__)

_lock = threading.RLock()


class _PreparingEnviron(os._Environ):  # type: ignore[type-arg] # not generic in Python 3.10
    def __getitem__(self, key: str) -> str:
        _join_for(key)
        # Not super(): the class changes once the group exists.
        return str(os._Environ.__getitem__(self, key))

    def __setitem__(self, key: str, value: str) -> None:
        _join_for(key)  # the script's own value must be the last
        os._Environ.__setitem__(self, key, value)

    def __delitem__(self, key: str) -> None:
        _join_for(key)
        os._Environ.__delitem__(self, key)

    def __iter__(self) -> Iterator[str]:
        if not _needs_no_group():
            join()
        return os._Environ.__iter__(self)


def begin() -> None:
    """Does nothing if the agent has started this process for a group."""
    if os.environ.pop(PREPARING, ""):
        os.environ.__class__ = _PreparingEnviron
        os.register_at_fork(after_in_child=_end)  # a data loader's worker has no group


def prepares() -> bool:
    """Whether this process still has no group."""
    return os.environ.__class__ is _PreparingEnviron


def join(*, in_process: bool = False) -> None:
    """Waits for the first group; raises ConnectionError if the agent is gone."""
    if not prepares():
        return
    with _lock:
        if not prepares():  # another thread has joined
            return
        environment: dict[str, str] = {}
        try:
            agent = agent_link.current()
            if agent is not None:
                if in_process:
                    agent.cooperate(in_process=True)
                agent.leave()
                with script_end.at_sigterm():
                    environment = agent.wait_for_go()
        finally:
            _end()
        os.environ.update(environment)
        if "RANK" in environment and (lightning := sys.modules.get(_LIGHTNING)) is not None:
            lightning.rank_zero_only.rank = int(environment["RANK"])


def _join_for(variable: str) -> None:
    if variable in GROUP_VARIABLES and not _needs_no_group():
        join()


def _needs_no_group() -> bool:
    """Whether the module that uses `os.environ` does so for itself, not for the group."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__')}.".startswith(_NEED_NO_GROUP)


def _end() -> None:
    os.environ.__class__ = os._Environ
