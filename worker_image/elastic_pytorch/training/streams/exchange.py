"""The ranks' exchange of how far each has read a stream."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch.distributed as dist

from elastic_pytorch.group import in_process
from elastic_pytorch.group.rank_group import (
    RankGroup,
    TorchGroup,
    cpu_group,
    digest_number,
    first_other,
    gather_objects,
)
from elastic_pytorch.training.streams.deal import Position

Gather = Callable[[Sequence[int]], list[list[int]]]


class Report(NamedTuple):
    """What a rank has for the next step."""

    samples: int
    skips: int  # newly unreadable shards
    positions: tuple[Position, ...]


class Exchange:
    """The exchange of a group; `place` is this rank's, and their number."""

    def __init__(
        self, gather: Gather, gather_objects: Callable[[Any], list[Any]], place: tuple[int, int]
    ) -> None:
        self._gather, self._gather_objects = gather, gather_objects
        self.rank, self.ranks = place

    def compare(self, what: Mapping[str, object]) -> None:
        """Raises a RuntimeError, on all ranks, if their settings or places differ. Collective."""
        rows = self._gather([self.ranks, *(digest_number(repr(each)) for each in what.values())])
        for name, column in zip(
            ("number of data-parallel ranks", *what), zip(*rows, strict=True), strict=True
        ):
            if (other := first_other(column)) is not None:
                raise RuntimeError(
                    f"ranks 0 and {other} have different streams: the {name} differs. "
                    "Samples would be lost or come twice: give all ranks the same, "
                    "and register the stream with the State"
                )

    def reports(self, own: Report) -> list[Report]:
        """Returns what each data-parallel rank has for the next step. Collective."""
        numbers = [
            self.rank,
            own.samples,
            own.skips,
            *(number for position in own.positions for number in position),
        ]
        found: dict[int, Report] = {}
        for place, samples, skips, *at in self._gather(numbers):
            its = Report(samples, skips, tuple(map(Position, at[::2], at[1::2])))
            if found.setdefault(place, its) != its:
                raise RuntimeError(
                    f"two ranks that compute the samples of data-parallel rank {place} together "
                    f"have read differently: {found[place]}, and {its}. "
                    "What `read` returns must depend on the shard alone"
                )
        return [found[rank] for rank in range(self.ranks)]

    def all_skipped(self, own: list[int], reports: Sequence[Report]) -> list[int]:
        """Returns the shards that any rank has skipped. Collective, if there are any."""
        if not any(each.skips for each in reports):
            return []
        return sorted({shard for shards in self._gather_objects(own) for shard in shards})


class Groups:
    def __init__(self) -> None:
        self._has_group = False
        self._group: Any = None  # that sends CPU tensors; None: the default one

    def exchange(self, place: tuple[int, int]) -> Exchange:
        """Returns the exchange of the current group. Collective."""
        if not dist.is_initialized():
            return Exchange(RankGroup().gather, lambda own: [own], place)
        if not self._has_group:
            self._has_group, self._group = True, cpu_group()
            in_process.register_holder(self)
        # The group is read each time: another one may be formed while the exchange is kept.
        return Exchange(
            lambda own: TorchGroup(self._group).gather(own),
            lambda own: gather_objects(own, self._group),
            place,
        )

    def _leave_group(self) -> None:
        self._has_group, self._group = False, None
