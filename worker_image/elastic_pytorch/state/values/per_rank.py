"""Objects whose state differs from rank to rank."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist

from elastic_pytorch.group.rank_group import gather_objects
from elastic_pytorch.state.values.registered import is_stateful
from elastic_pytorch.state_format.payload import decoded, encoded

Kept = TypeVar("Kept")
Reshard = Callable[[list[Any], int, int], Any]


class PerRank(Generic[Kept]):
    """Has a State keep an object by rank, such as each rank's own place in a stream.

    Where rank and world size are the same as at the commit, the object gets its state back. With
    each commit all ranks exchange their states, and each pod keeps all: it is for states of
    kilobytes.

    Args:
        each: an object that has a `state_dict` and a `load_state_dict`; not a model or an
            optimizer.
        reshard: returns this rank's state in a group of another size, from the states of all ranks
            of the group before, this rank, and the world size. None: such a group cannot go on.

    Attributes:
        each: the object.

    Raises:
        TypeError: the object cannot be kept by rank.
    """

    def __init__(self, each: Kept, *, reshard: Reshard | None = None) -> None:
        if isinstance(each, (torch.nn.Module, torch.optim.Optimizer)) or hasattr(each, "advance"):
            raise TypeError(
                f"PerRank({type(each).__name__}): a model, an optimizer or an ElasticSampler is "
                "the same on all ranks"
            )
        if not is_stateful(each):
            raise TypeError(
                f"PerRank({type(each).__name__}): it needs a state_dict and a load_state_dict"
            )
        self.each = each
        self._reshard = reshard
        self._rank, self._world = 0, 1
        self._states: list[Any] = []

    def state_dict(self) -> dict[str, Any]:
        return {"states": self._states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        states = state["states"]
        if len(states) == self._world:
            own = states[self._rank]
        elif self._reshard is not None:
            own = self._reshard(states, self._rank, self._world)
        else:
            raise RuntimeError(
                f"{len(states)} ranks have each committed a state of their own, "
                f"and this group has {self._world}. Give PerRank a reshard(states, rank, "
                "world_size) that returns a rank's state, or keep the group's size"
            )
        self.each.load_state_dict(own)  # type: ignore[attr-defined]

    def exchange(self, group: Any) -> None:
        self._rank, self._world = (
            (dist.get_rank(group), dist.get_world_size(group)) if dist.is_initialized() else (0, 1)
        )
        payload = encoded(self.each.state_dict())  # type: ignore[attr-defined]
        payloads = gather_objects(payload, group) if self._world > 1 else [payload]
        self._states = [decoded(each) for each in payloads]


def exchange_all(objects: Iterable[Any], group: Any) -> None:
    """Has all ranks exchange the states that they keep by rank. Collective, if there is any."""
    for each in objects:
        if isinstance(each, PerRank):
            each.exchange(group)
