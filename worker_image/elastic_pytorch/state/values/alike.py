"""Refuses objects that State would lose: under rank 0's state, where each rank has another one, or by a state that is empty."""

import hashlib
import json
from collections.abc import (
    Callable,
    Iterator,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
    Sized,
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
_OF_MODULES = frozenset(vars(torch.nn.Module()))  # what each module has
# The States that this process has restored: what their objects hold since is no beginning.
_loaded: set[str] = set()


class Comparison:
    """What must be the same on all ranks.

    They gather its numbers, and then call `refuse_different`.

    Args:
        parameters: of the models, as `describe` has them.
        objects: that are registered, by name.
        plain: returns a state without what the ranks have in parts.

    Raises:
        UnsupportedValue: a state is not plain data.
        RuntimeError: a state is empty, and its object is not.
    """

    def __init__(
        self,
        identity: Identity,
        parameters: dict[str, str],
        objects: dict[str, Any],
        plain: Plain = dict,
    ) -> None:
        self._name, self._description = identity.key, {"State": identity.description, **parameters}
        tells = identity.key not in _loaded
        if tells:
            _refuse_empty(objects)
        self._begins = digests_of(objects, plain) if tells else {}
        # What this rank tells the others.
        self.numbers = [
            digest_number(repr(self._description)),
            _number_of(self._begins) if tells else 0,
        ]

    def refuse_different(self, group: RankGroup, told: Sequence[Sequence[int]]) -> None:
        """Makes sure that all ranks have the same description, and have begun alike, apart from models and their optimizers.

        The latter once for each State of a process: one that has restored it before tells nothing,
        as its objects have been trained, and those of a new process have not. Collective, if
        something differs.

        Raises:
            RuntimeError: on all ranks alike; the message names the object and what to use instead,
                or see `refuse_unlike`.
        """
        descriptions, begins = zip(*told, strict=True)
        refuse_unlike(group, self._description, descriptions)
        _loaded.add(self._name)
        if 0 not in begins and (found := _first_unlike(group, self._begins, begins)) is not None:
            name, other = found
            raise RuntimeError(
                f"{name} begins with another state on rank {other} than on rank 0, and State would load rank 0's on all ranks. If each "
                f"rank has a state of its own, register elastic.PerRank({name}). For the place in the data, an ElasticSampler or an "
                "ElasticStream fits groups of any size. If it should begin alike, such as an average of the weights, set the same seed on "
                "all ranks"
            )


def refuse_grown_apart(group: RankGroup, objects: dict[str, Any], plain: Plain = dict) -> None:
    """Makes sure that what is kept once for all ranks is the same on all.

    Collective; to be called after a step.

    Raises:
        RuntimeError: on all ranks alike; the message names the object and what to use instead.
    """
    digests = digests_of(objects, plain)
    told = [number for (number,) in group.gather([_number_of(digests)])]
    if (found := _first_unlike(group, digests, told)) is not None:
        name, other = found
        raise RuntimeError(
            f"{name} has another state on rank {other} than on rank 0, and the next group would get rank 0's on all ranks. What each rank "
            f"has counted for itself is kept by elastic.PerRank({name}), whose reshard= may add it up. If rank 0's state is right for all, "
            f"set {name}.rank_0_counts = True"
        )


def _number_of(digests: dict[str, str]) -> int:
    return digest_number(repr(sorted(digests.items())))


def _first_unlike(
    group: RankGroup, digests: dict[str, str], told: Sequence[int]
) -> tuple[str, int] | None:
    """Returns the name of the first object that differs from rank 0's, and the rank that has it."""
    if (other := first_other(told)) is None:
        return None
    first, second = group.broadcast(digests, 0), group.broadcast(digests, other)
    name = next(key for key in [*first, *second] if first.get(key) != second.get(key))
    if name not in first or name not in second:
        has, lacks = (0, other) if name in first else (other, 0)
        raise RuntimeError(
            f"only rank {has} has {name}, and rank {lacks} does not: a State must be the same on all ranks"
        )
    return name, other


def digests_of(objects: dict[str, Any], plain: Plain) -> dict[str, str]:
    """Returns digests of the states, by name; empty for what may differ, as rank 0's replaces it rightly, or as it is kept by rank."""
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
                f"{name} has an empty state_dict, and holds {', '.join(held)}: State would keep nothing of it. A metric of torchmetrics is "
                f"kept after {name}.persistent(True); anything else needs a state_dict with what it holds. If it always begins again, do "
                "not register it"
            )


def held_by(each: object) -> list[str]:
    """Returns the names of an object's attributes that have tensors or collections in them, except for a module's buffers."""
    parts = each.modules() if isinstance(each, torch.nn.Module) else [each]
    held = (torch.Tensor, MutableMapping, MutableSequence, MutableSet)
    return [
        key
        for part in parts
        for key, value in getattr(part, "__dict__", {}).items()
        if not (isinstance(part, torch.nn.Module) and key in _OF_MODULES)
        and isinstance(value, held)
        and _has_any(value)
    ]


def _has_any(value: Sized) -> bool:
    return isinstance(value, torch.Tensor) or len(value) > 0


def digest_of(tree: Any) -> str:
    """Returns a digest of a state: of its values, whatever the order of its keys and wherever its tensors are."""
    skeleton, tensors = flatten(tree)
    return hashlib.sha256(
        _canonical(json.loads(skeleton)["tree"], iter(tensors)).encode()
    ).hexdigest()


def _canonical(node: Any, tensors: Iterator[torch.Tensor]) -> str:
    if isinstance(node, dict):
        return f"{{{','.join(sorted(f'{key!r}:{_canonical(each, tensors)}' for key, each in node.items()))}}}"
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
