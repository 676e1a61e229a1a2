"""What the operator remembers of a group that stock torchrun forms."""

from dataclasses import dataclass, field

from elastic_pytorch_operator.planning.stock.group import StockGroup


@dataclass(frozen=True, slots=True)
class StockMemory:
    """A stock rendezvous from one plan to the next; all of it can be lost without harm to the job.

    Attributes:
        rendezvous: the number of the one that the rest is about.
        since: when it was first seen, monotonic seconds.
        disturbed: workers of it have been lost, or may have been before this operator was there.
        group: the workers that run.
        victims: workers deleted because they were too many.
        in_a_row: how many before it were over soon.
        over_since: when it was found to be over; None: it is not.
        understood: why it is over has been found out, and counted.
        backoff_until: no new one begins before, monotonic seconds.
    """

    rendezvous: int
    since: float
    disturbed: bool
    group: StockGroup
    victims: frozenset[str] = field(default_factory=frozenset)
    in_a_row: int = 0
    over_since: float | None = None
    understood: bool = False
    backoff_until: float = 0.0
