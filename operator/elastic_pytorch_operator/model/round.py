"""A round: the members of the group, in rank order.

Declared by the operator, carried out by the agents.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Member:
    """A worker pod in a round; its rank is its place in `Round.members`."""

    worker: str
    index: int
    address: str


@dataclass(frozen=True, slots=True)
class Round:
    number: int  # grows with each round of a job
    members: tuple[Member, ...]  # in rank order; empty: all stop and wait
    store_port: int  # where rank 0 serves the c10d store
    reason: str  # empty: taken over from agents by a new leader, which declares it to none
    cause: str
    declared_at: float
    # How many members were declared. More than `len(members)` only in a round that a restarted
    # operator has put together from what agents reported, when not all of them have done so.
    size: int = -1
    # The oldest round since which no member has been lost: every member of every round was alive
    # when the next one was declared. The round's own number if a member was lost before it.
    orderly_since: int = -1
    # Rounds after `orderly_since` whose groups never formed, and of which a member was lost.
    unformed: tuple[int, ...] = ()
    # The oldest round since which each round has had all members of the one before. The round's own
    # number if this one has not.
    keeps_all_since: int = -1
    ranks: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.size < 0:
            object.__setattr__(self, "size", len(self.members))
        if self.orderly_since < 0:
            object.__setattr__(self, "orderly_since", self.number)
        if self.keeps_all_since < 0:
            object.__setattr__(self, "keeps_all_since", self.number)
        object.__setattr__(
            self, "ranks", {member.worker: rank for rank, member in enumerate(self.members)}
        )

    @property
    def workers(self) -> tuple[str, ...]:
        """The members' pod names, in rank order."""
        return tuple(self.ranks)
