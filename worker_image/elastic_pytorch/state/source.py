"""Which rank's state a new group continues from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elastic_pytorch.state_format.state_version import StateVersion

NONE = StateVersion(0, 0)  # of a rank that has nothing: generations begin with 1
NO_POD = -1


class MemoryReport(NamedTuple):
    """What each rank sends about the state in its pod's memory."""

    generation: int  # 0: none, or another process of the pod keeps the state
    step: int
    layout: int  # a digest of the types and shapes of the state's tensors
    writer: int  # the rank in the previous group that has written the state
    pod: int  # whose memory this rank uses
    keeps: bool  # whether this rank is the one process that writes that memory
    words: int = 0  # the bytes of the state apart from its tensors

    @property
    def version(self) -> StateVersion:
        return StateVersion(self.generation, self.step)

    @property
    def shares(self) -> bool:
        return self.pod != NO_POD and not self.keeps


@dataclass(frozen=True, slots=True)
class Source:
    """The rank `root` that has a state, and the ranks without it in their pod's memory."""

    version: StateVersion
    root: int
    lacking: tuple[int, ...]


def choose_memory(reports: Sequence[MemoryReport]) -> Source | None:
    """Returns the newest state in memory; None: no rank has any.

    If several ranks hold it, the root had the lowest rank of them in the previous group:
    DistributedDataParallel has trained with the buffers of rank 0.
    """
    newest = max(each.version for each in reports)
    if newest == NONE:
        return None
    holders = {rank: each for rank, each in enumerate(reports) if each.version == newest}
    root = min(holders, key=lambda rank: holders[rank].writer)
    layout = holders[root].layout
    has = {rank for rank, each in holders.items() if each.layout == layout}
    return Source(newest, root, lacking(reports, has))


def lacking(reports: Sequence[MemoryReport], has: set[int]) -> tuple[int, ...]:
    """Returns the ranks to which those in `has` must send a state."""
    return tuple(rank for rank, each in enumerate(reports) if rank not in has and not each.shares)
