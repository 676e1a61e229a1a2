"""What the ranks tell each other of a stream: with each step, how far each has read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch.distributed as dist

from elastic_pytorch.group import in_process
from elastic_pytorch.group.rank_group import (
    Alone,
    TorchGroup,
    cpu_group,
    digest_number,
    first_other,
    gather_objects,
)
from elastic_pytorch.training.streams.deal import Position

Gather = Callable[[Sequence[int]], list[list[int]]]


class Told(NamedTuple):
    """What a rank tells the others before the next step.

    Attributes:
        samples: that it has for it.
        skips: how many shards it has skipped since the step before.
        lanes: where its lanes are after it.
    """

    samples: int
    skips: int
    lanes: tuple[Position, ...]


class Exchange:
    """The exchange of a group.

    Args:
        gather: returns the numbers of all ranks, as many of each.
        gather_objects: returns the objects of all ranks.
        place: this rank among the data-parallel ranks, and how many of these there are.
    """

    def __init__(
        self, gather: Gather, gather_objects: Callable[[Any], list[Any]], place: tuple[int, int]
    ) -> None:
        self._gather, self._gather_objects = gather, gather_objects
        self.rank, self.ranks = place

    def compare(self, what: Mapping[str, object]) -> None:
        """Makes sure that all ranks have the same settings and the same place. Collective.

        Args:
            what: each by its name.

        Raises:
            RuntimeError: they do not; on all ranks alike.
        """
        told = self._gather([self.ranks, *(digest_number(repr(each)) for each in what.values())])
        for name, column in zip(
            ("number of data-parallel ranks", *what), zip(*told, strict=True), strict=True
        ):
            if (other := first_other(column)) is not None:
                raise RuntimeError(
                    f"ranks 0 and {other} have different streams: the {name} differs. Samples would be lost or come twice: give all ranks "
                    "the same, and register the stream with the State"
                )

    def tell(self, own: Told) -> list[Told]:
        """Returns what each data-parallel rank has for the next step. Collective.

        Raises:
            RuntimeError: ranks that share a place among the data-parallel ranks have read
                differently; on all ranks alike.
        """
        numbers = [
            self.rank,
            own.samples,
            own.skips,
            *(number for lane in own.lanes for number in lane),
        ]
        told: dict[int, Told] = {}
        for place, samples, skips, *lanes in self._gather(numbers):
            its = Told(samples, skips, tuple(map(Position, lanes[::2], lanes[1::2])))
            if told.setdefault(place, its) != its:
                raise RuntimeError(
                    f"two ranks that compute the samples of data-parallel rank {place} together have read differently: {told[place]}, and "
                    f"{its}. What `read` returns must depend on the shard alone"
                )
        return [told[rank] for rank in range(self.ranks)]

    def all_skipped(self, own: list[int], told: Sequence[Told]) -> list[int]:
        """Returns the shards that any rank has skipped. Collective, if there are any."""
        if not any(each.skips for each in told):
            return []
        return sorted({shard for shards in self._gather_objects(own) for shard in shards})


class Groups:
    """Makes the exchange of each group that a process is in, one after the other."""

    def __init__(self) -> None:
        self._has_group = False
        self._group: Any = None  # that sends CPU tensors; None: the default one

    def exchange(self, place: tuple[int, int]) -> Exchange:
        """Returns that of the current group, of which this rank has a place among the data-parallel ranks. Collective."""
        if not (dist.is_available() and dist.is_initialized()):
            return Exchange(Alone().gather, lambda own: [own], place)
        if not self._has_group:
            self._has_group, self._group = True, cpu_group()
            in_process.register_holder(self)
        # The group is asked for each time: another one may be formed while the exchange is kept.
        return Exchange(
            lambda own: TorchGroup(self._group).gather(own),
            lambda own: gather_objects(own, self._group),
            place,
        )

    def _leave_group(self) -> None:
        """Drops the process group."""
        self._has_group, self._group = False, None
