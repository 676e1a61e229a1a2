"""A round: the members of the group, in rank order. The operator declares it to the agents."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Member:
    """A worker pod in a round; its rank is its place in `Round.members`."""

    worker: str
    address: str


@dataclass(frozen=True)
class Round:
    number: int  # grows with each round of a job
    members: tuple[Member, ...]  # in rank order; empty: all stop and wait
    store_port: int  # of the c10d store at rank 0
    reason: str  # empty: a new leader has taken it over from agents, and declares it to none
    cause: str
    declared_at: float
    # More than `len(members)` only if a new leader put the round together before all had reported.
    size: int = -1
    # The oldest round since which all members were alive as the next one was declared; the round's
    # own number if a member was lost just before, or none trained.
    orderly_since: int = -1
    # Later rounds that lost a member before they formed: a group before them may still train.
    unformed: tuple[int, ...] = ()
    # The oldest round since which each has kept all members of the one before, so that no pod waits
    # for workers to stop.
    keeps_all_since: int = -1

    def __post_init__(self) -> None:
        if self.size < 0:
            object.__setattr__(self, "size", len(self.members))
        if self.orderly_since < 0:
            object.__setattr__(self, "orderly_since", self.number)
        if self.keeps_all_since < 0:
            object.__setattr__(self, "keeps_all_since", self.number)

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        return {member.worker: rank for rank, member in enumerate(self.members)}

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(self.ranks)
