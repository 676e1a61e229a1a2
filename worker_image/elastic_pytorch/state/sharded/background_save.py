"""A checkpoint that is written from a copy while training goes on."""

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from elastic_pytorch.memory.pod_memory import workers_of_pod
from elastic_pytorch.memory.slot_memory import room
from elastic_pytorch.state.sharded.peers.memory import shard_bytes
from elastic_pytorch.state.sharded.regions import local_part
from elastic_pytorch.state.sharded.trees import Tree, insert, taken_apart
from elastic_pytorch.state.step_boundary import any_rank
from elastic_pytorch.state_format.state_encoding import flatten, unflatten
from elastic_pytorch.state_format.state_version import StateVersion


class BackgroundSave:
    """Saves one version after the other, in a thread; the same on all ranks."""

    def __init__(self) -> None:
        self.version: StateVersion | None = None  # from `begin` to `take`
        self._thread = threading.Thread()
        self._problem: Exception | None = None

    def begin(self, version: StateVersion, save: Callable[[], None]) -> None:
        assert self.version is None
        self.version, self._problem = version, None
        # A daemon, so that a process that has failed ends at once.
        self._thread = threading.Thread(
            target=self._run, args=(save,), name="checkpoint", daemon=True
        )
        self._thread.start()

    def take(self, *, wait: bool) -> tuple[StateVersion, Exception | None] | None:
        if self.version is None or (self._thread.is_alive() and not wait):
            return None
        self._thread.join()
        version, self.version = self.version, None
        return version, self._problem

    def _run(self, save: Callable[[], None]) -> None:
        try:
            save()
        except Exception as error:
            self._problem = error


def has_room_for_copy(tree: Tree, group: dist.ProcessGroup | None) -> bool:
    """Whether all ranks' containers have memory for a copy of the state. Collective."""
    left = room()
    lacks = left is not None and shard_bytes(tree) * workers_of_pod() > left
    return not any_rank(lacks, group)


def copy_on_cpu(tree: Tree) -> Tree:
    shards, rest = taken_apart(tree)
    skeleton, tensors = flatten(rest)
    copied: Tree = unflatten(skeleton, [_on_cpu(tensor) for tensor in tensors])
    for keys, tensor in shards.items():
        insert(copied, keys, _with_local(tensor, _on_cpu(local_part(tensor))))
    return copied


def _with_local(tensor: DTensor, local: torch.Tensor) -> DTensor:
    """Returns a tensor that is sharded like another one, with a local part on another device.

    `from_local` would put it on the mesh's device. This uses the protocol of tensor subclasses
    (torch.utils._python_dispatch.is_traceable_wrapper_subclass).
    """
    like: Any = tensor.detach()
    names, spec = like.__tensor_flatten__()
    parts = {name: getattr(like, name) for name in names}
    own = {name: local if isinstance(part, torch.Tensor) else part for name, part in parts.items()}
    made: DTensor = type(like).__tensor_unflatten__(own, spec, like.shape, like.stride())
    return made


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)
