"""The plain values of a State: rank 0's, as most scripts compute them only there."""

from collections.abc import MutableMapping, MutableSequence, MutableSet
from itertools import islice, zip_longest
from typing import Any

import torch

from elastic_pytorch.group.rank_group import RankGroup
from elastic_pytorch.state_format.state_encoding import flatten

Fingerprint = tuple[int, ...]


def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """Returns what torch changes with each write to a tensor."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


class PlainValues:
    def __init__(self, group: RankGroup, values: dict[str, Any]) -> None:
        self._group = group
        self._known = _seen(values)

    def take_over(self, values: dict[str, Any]) -> None:
        """Replaces values by rank 0's changed ones. Collective."""
        changed = False
        if self._group.rank == 0:
            before, self._known = self._known, _seen(values)
            changed = before[0] != self._known[0]
        if not self._group.first(int(changed)):
            return
        taken = self._group.broadcast(values, 0)
        if self._group.rank != 0:
            placed(taken, values)


def placed(new: Any, old: Any) -> Any:
    """Returns `new` for `old`, in the old collection, to which the script may refer.

    A tensor comes to the device of the old one, which stays as it is: it may belong to the model.
    """
    if isinstance(new, torch.Tensor) and isinstance(old, torch.Tensor):
        return new.to(old.device)
    if new is old or type(new) is not type(old):
        return new
    if isinstance(old, MutableMapping):
        content = {key: placed(each, old.get(key)) for key, each in new.items()}
        old.clear()
        old.update(content)
    elif isinstance(old, MutableSequence):
        items = [placed(each, before) for each, before in zip_longest(new, islice(old, len(new)))]
        old.clear()
        old.extend(items)
    elif isinstance(old, MutableSet):
        old.clear()
        old |= new
    elif type(new) is tuple:
        return tuple(placed(each, before) for each, before in zip_longest(new, old[: len(new)]))
    else:
        return new
    return old


def _seen(
    values: dict[str, Any],
) -> tuple[tuple[bytes, list[Fingerprint]], list[torch.Tensor]]:
    """Returns a fingerprint, and the tensors, so that no new one gets an old one's address."""
    skeleton, tensors = flatten(values)
    return (skeleton, [fingerprint(tensor) for tensor in tensors]), tensors
