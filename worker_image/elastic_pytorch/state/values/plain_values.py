"""The plain values of a State, taken from rank 0: most scripts compute them only there, and each pod must have them."""

from typing import Any

import torch

from elastic_pytorch.group.rank_group import RankGroup
from elastic_pytorch.state_format.state_encoding import flatten, unflatten

Fingerprint = tuple[int, ...]


def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """Returns what changes when a tensor is replaced, or when torch has written to it, but not when another library has."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


class PlainValues:
    """Detects changes of rank 0's values, and sends them to all ranks."""

    def __init__(self, group: RankGroup, values: dict[str, Any]) -> None:
        self._group = group
        self._known = _Seen(values)

    def take_over(self, values: dict[str, Any]) -> bool:
        """Replaces values by rank 0's if those have changed; returns whether they were replaced on this rank. Collective.

        A tensor counts as changed when another one has replaced it, or when torch has written to it.
        """
        changed = False
        if self._group.rank == 0:
            seen = _Seen(values)
            changed, self._known = seen != self._known, seen
        if not self._group.first(int(changed)):
            return False
        taken = self._group.broadcast(values, 0)
        if self._group.rank != 0:
            values.update(_where_they_were(taken, values))
        return self._group.rank != 0


def _where_they_were(taken: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Returns values with their tensors on the devices of the tensors that they replace, if the numbers match."""
    skeleton, tensors = flatten(taken)
    _, before = flatten(values)
    if len(before) != len(tensors):
        return taken
    moved: dict[str, Any] = unflatten(skeleton, [new.to(old.device) for new, old in zip(tensors, before, strict=True)])
    return moved


class _Seen:
    """A fingerprint of values. It keeps their tensors, so that no new tensor gets the address of an old one."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._skeleton, self._tensors = flatten(values)
        self._versions = [fingerprint(tensor) for tensor in self._tensors]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Seen) and (self._skeleton, self._versions) == (other._skeleton, other._versions)

    __hash__ = None  # type: ignore[assignment]
