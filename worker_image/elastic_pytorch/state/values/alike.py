"""Refuses objects whose states State would lose."""

import hashlib
import json
from collections.abc import (
    Callable,
    Iterator,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
)
from typing import Any

import torch

from elastic_pytorch.group.rank_group import RankGroup, digest_number, first_other
from elastic_pytorch.memory.state_names import Identity
from elastic_pytorch.state.values.per_rank import PerRank
from elastic_pytorch.state.values.registered import refuse_unlike
from elastic_pytorch.state_format.payload import memory_of
from elastic_pytorch.state_format.state_encoding import flatten

Plain = Callable[[dict[str, Any]], Any]
_OF_MODULES = frozenset(vars(torch.nn.Module()))  # attributes of each module
# The States that this process has restored, whose objects no longer hold an initial state.
_loaded: set[str] = set()


class Comparison:
    """The ranks gather its `numbers`, and then call `refuse_different`."""

    def __init__(
        self,
        identity: Identity,
        parameters: dict[str, str],
        objects: dict[str, Any],
        plain: Plain,
    ) -> None:
        self._name, self._description = identity.key, {"State": identity.description, **parameters}
        begins = identity.key not in _loaded
        if begins:
            _refuse_empty(objects)
        self._begins = digests_of(objects, plain) if begins else {}
        self.numbers = [
            digest_number(repr(self._description)),
            _number_of(self._begins) if begins else 0,
        ]

    def refuse_different(self, group: RankGroup, numbers: Sequence[Sequence[int]]) -> None:
        """Raises a RuntimeError, on all ranks, if descriptions or initial states differ.

        A process that has restored this State before has no initial states to compare. Collective,
        if something differs.
        """
        descriptions, begins = zip(*numbers, strict=True)
        refuse_unlike(group, self._description, descriptions)
        _loaded.add(self._name)
        if 0 not in begins and (found := _first_unlike(group, self._begins, begins)) is not None:
            name, other = found
            raise RuntimeError(
                f"{name} begins with another state on rank {other} than on rank 0, "
                "and State would load rank 0's on all ranks. If each rank has a state of its own, "
                f"register elastic.PerRank({name}). For the place in the data, "
                "an ElasticSampler or an ElasticStream fits groups of any size. "
                "If it should begin alike, such as an average of the weights, "
                "set the same seed on all ranks"
            )


def refuse_grown_apart(group: RankGroup, objects: dict[str, Any], plain: Plain) -> None:
    """Raises a RuntimeError, on all ranks, if a state that is kept once differs. Collective."""
    digests = digests_of(objects, plain)
    numbers = [number for (number,) in group.gather([_number_of(digests)])]
    if (found := _first_unlike(group, digests, numbers)) is not None:
        name, other = found
        raise RuntimeError(
            f"{name} has another state on rank {other} than on rank 0, "
            "and the next group would get rank 0's on all ranks. What each rank has counted for "
            f"itself is kept by elastic.PerRank({name}), whose reshard= may add it up. "
            f"If rank 0's state is right for all, set {name}.rank_0_counts = True"
        )


def _number_of(digests: dict[str, str]) -> int:
    return digest_number(repr(sorted(digests.items())))


def _first_unlike(
    group: RankGroup, digests: dict[str, str], numbers: Sequence[int]
) -> tuple[str, int] | None:
    if (other := first_other(numbers)) is None:
        return None
    first, second = group.broadcast(digests, 0), group.broadcast(digests, other)
    name = next(key for key in [*first, *second] if first.get(key) != second.get(key))
    if name not in first or name not in second:
        has, lacks = (0, other) if name in first else (other, 0)
        raise RuntimeError(
            f"only rank {has} has {name}, and rank {lacks} does not: "
            "a State must be the same on all ranks"
        )
    return name, other


def digests_of(objects: dict[str, Any], plain: Plain) -> dict[str, str]:
    """Returns digests of the states, by name; empty for those that may differ."""
    return {
        name: "" if _may_differ(each) else digest_of(plain({name: each.state_dict()}))
        for name, each in objects.items()
    }


def _may_differ(each: object) -> bool:
    return isinstance(each, (torch.nn.Module, torch.optim.Optimizer, PerRank)) or getattr(
        each, "rank_0_counts", False
    )


def _refuse_empty(objects: dict[str, Any]) -> None:
    for name, each in objects.items():
        keeps = _may_differ(each) and not isinstance(each, torch.nn.Module)
        if not keeps and not len(each.state_dict()) and (held := held_by(each)):
            raise RuntimeError(
                f"{name} has an empty state_dict, and holds {', '.join(held)}: "
                "State would keep nothing of it. A metric of torchmetrics is kept after "
                f"{name}.persistent(True); anything else needs a state_dict with what it holds. "
                "If it always begins again, do not register it"
            )


def held_by(each: object) -> list[str]:
    """Returns the names of attributes with content, apart from modules' buffers."""
    parts = each.modules() if isinstance(each, torch.nn.Module) else [each]
    held = (torch.Tensor, MutableMapping, MutableSequence, MutableSet)
    return [
        key
        for part in parts
        for key, value in getattr(part, "__dict__", {}).items()
        if not (isinstance(part, torch.nn.Module) and key in _OF_MODULES)
        and isinstance(value, held)
        and (isinstance(value, torch.Tensor) or len(value) > 0)
    ]


def digest_of(tree: Any) -> str:
    """Returns a digest of a state's values, for any order of keys and any devices."""
    skeleton, tensors = flatten(tree)
    return hashlib.sha256(
        _canonical(json.loads(skeleton)["tree"], iter(tensors)).encode()
    ).hexdigest()


def _canonical(node: Any, tensors: Iterator[torch.Tensor]) -> str:
    if isinstance(node, dict):
        items = sorted(f"{key!r}:{_canonical(each, tensors)}" for key, each in node.items())
        return f"{{{','.join(items)}}}"
    if not isinstance(node, list):
        return repr(node)
    tag, parts = node[0], node[1:]
    if tag in ("T", "A", "S"):
        own = next(tensors).detach().cpu().contiguous()
        content = hashlib.blake2b(memory_of(own) if own.numel() else b"").hexdigest()
        return f"[{tag},{parts},{content}]"
    if tag == "v":
        return "[v]"  # each rank has a device of its own
    texts = [_canonical(part, tensors) for part in parts]
    if tag == "{":
        texts = [f"{key}:{value}" for key, value in zip(texts[::2], texts[1::2], strict=True)]
    return f"[{tag},{','.join(sorted(texts) if tag in ('{', 's', 'f') else texts)}]"
