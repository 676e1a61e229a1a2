"""Where a new group goes on from: the newest state that any of its ranks holds in memory, else the newest on disk.

All ranks hear the same of each other and so decide the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist

from elastic_pytorch import checkpoint_folder
from elastic_pytorch.checkpoint_file import Loaded, load_newest
from elastic_pytorch.snapshot import Snapshot
from elastic_pytorch.stamp import Stamp
from elastic_pytorch.tree_broadcast import broadcast_tree

NONE = Stamp(0, 0)  # of a rank that has nothing: generations begin with 1


@dataclass(frozen=True, slots=True)
class Source:
    """Where a state comes from.

    Attributes:
        stamp: of the state.
        root: the rank that has it.
        everybody: all ranks have it in memory.
    """

    stamp: Stamp
    root: int
    everybody: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A state to go on from.

    Attributes:
        stamp: of the state; (0, 0): there was none, and this is what rank 0 has begun with.
        tree: the state.
        generation: of the group that goes on from it.
        where: for people.
    """

    stamp: Stamp
    tree: Any
    generation: int
    where: str


class Group(Protocol):
    """A group of ranks, as far as this needs it."""

    rank: int

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """The numbers of all ranks, in their order."""

    def broadcast(self, tree: Any, root: int) -> Any:
        """The root's tree."""


class TorchGroup:
    """A group of torch.distributed.

    Args:
        group: of a backend that sends CPU tensors; None: the default group.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self.rank = dist.get_rank(group)

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """The numbers of all ranks, in their order. Collective."""
        own = torch.tensor(numbers, dtype=torch.int64)
        all_ = [torch.zeros_like(own) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(all_, own, group=self._group)
        return [each.tolist() for each in all_]

    def broadcast(self, tree: Any, root: int) -> Any:
        """The root's tree. Collective."""
        return broadcast_tree(tree, root, self._group)


class Alone:
    """The group of a process that has no group."""

    rank = 0

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return these numbers."""
        return [list(numbers)]

    def broadcast(self, tree: Any, root: int) -> Any:
        """Return this tree."""
        del root
        return tree


def choose_memory(stamps: Sequence[Stamp]) -> Source | None:
    """The newest state in memory; None: no rank has any.

    Args:
        stamps: of the ranks' own states, (0, 0) where there is none.
    """
    newest = max(stamps)
    if newest == NONE:
        return None
    return Source(newest, stamps.index(newest), all(stamp == newest for stamp in stamps))


def find_newest(group: Group, snapshot: Snapshot | None, folder: str, fresh: Any) -> Found:
    """Finds what the group goes on from, and brings it to all ranks. Collective.

    Args:
        group: all that train.
        snapshot: this rank's own memory.
        folder: of checkpoints; empty: there is none. Only rank 0 looks there, so it need not be shared.
        fresh: what this rank has begun with: rank 0's is the start if there is nothing else.

    Raises:
        OSError: the folder, or a checkpoint in it, cannot be read; training must not begin anew because of that.
        MemoryError: there is no room for a checkpoint.
    """
    own = (snapshot.newest() if snapshot else None) or NONE
    on_disk, claimed = NONE, 0
    problem: OSError | None = None
    if group.rank == 0 and folder:
        try:
            on_disk = checkpoint_folder.newest_name(folder) or NONE
            claimed = checkpoint_folder.claimed(folder)
        except OSError as error:
            problem = error
    told = group.gather([*own, *on_disk, claimed, problem is not None])
    if told[0][5]:
        raise problem or OSError(f"rank 0 cannot read the checkpoints in {folder}")
    generation = 1 + max(max(numbers[0], numbers[2], numbers[4]) for numbers in told)
    memory = choose_memory([Stamp(*numbers[:2]) for numbers in told])
    if memory is None or memory.stamp < Stamp(*told[0][2:4]):
        found = _from_disk(group, folder, memory.stamp if memory else NONE, generation)
        if found is not None:
            return found
    if memory is None:
        return Found(NONE, group.broadcast(fresh, 0), generation, "the beginning")
    if memory.everybody and snapshot is not None:
        return Found(memory.stamp, snapshot.read()[1], generation, "memory")
    tree = snapshot.read()[1] if snapshot and group.rank == memory.root else None
    return Found(memory.stamp, group.broadcast(tree, memory.root), generation, f"the memory of rank {memory.root}")


def _from_disk(group: Group, folder: str, beyond: Stamp, generation: int) -> Found | None:
    """The newest whole checkpoint, if it is newer than what is in memory."""
    loaded: Loaded | None = None
    problem: Exception | None = None
    if group.rank == 0:
        try:
            loaded = load_newest(folder, beyond)
        except (OSError, MemoryError) as error:
            problem = error
    told = group.gather([*(loaded.stamp if loaded else NONE), problem is not None])[0]
    if told[2]:
        raise problem or OSError(f"rank 0 cannot read a checkpoint in {folder}")
    stamp = Stamp(*told[:2])
    if stamp == NONE:
        return None
    tree = group.broadcast(loaded.tree if loaded else None, 0)
    return Found(stamp, tree, generation, f"checkpoint {loaded.path.name}" if loaded else "rank 0's checkpoint")
