"""The origin of the state from which a new group continues, as its ranks decide from what all have told each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elastic_pytorch.state_format.state_version import StateVersion

NONE = StateVersion(0, 0)  # of a rank that has nothing: generations begin with 1
NO_POD = -1


class Told(NamedTuple):
    """What each rank sends to all others.

    Attributes:
        generation: of the state in the memory that this rank keeps; 0: there is none, or another
            process of the pod keeps it.
        step: of that state.
        layout: a digest of the types and shapes of that state's tensors.
        writer: the rank in the previous group that has written it.
        pod: the number of the pod whose memory it uses; -1: none.
        keeps: whether it is the one process that writes that memory.
        words: the bytes of what the others get of that state, apart from its tensors.
    """

    generation: int
    step: int
    layout: int
    writer: int
    pod: int
    keeps: bool
    words: int = 0

    @property
    def version(self) -> StateVersion:
        return StateVersion(self.generation, self.step)

    @property
    def shares(self) -> bool:
        """Whether it reads the memory that another process of its pod keeps."""
        return self.pod != NO_POD and not self.keeps


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a state.

    Attributes:
        root: the rank that has it.
        lacking: the ranks that do not have it, and whose pod's memory does not have it, either.
    """

    version: StateVersion
    root: int
    lacking: tuple[int, ...]


def choose_memory(told: Sequence[Told]) -> Source | None:
    """Returns the newest state in memory; None: no rank has any.

    If several ranks hold it, the root is the one with the lowest rank in the previous group: the
    buffers of rank 0 are those that DistributedDataParallel has trained with.
    """
    newest = max(each.version for each in told)
    if newest == NONE:
        return None
    _, root = min((each.writer, rank) for rank, each in enumerate(told) if each.version == newest)
    has = {
        rank
        for rank, each in enumerate(told)
        if each.version == newest and each.layout == told[root].layout
    }
    return Source(newest, root, lacking(told, has))


def lacking(told: Sequence[Told], has: set[int]) -> tuple[int, ...]:
    """Returns the ranks that a state must be sent to, given those that have it."""
    return tuple(rank for rank, each in enumerate(told) if rank not in has and not each.shares)
