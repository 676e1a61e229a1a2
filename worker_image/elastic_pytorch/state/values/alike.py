"""Refuses what State would overwrite: an object that each rank has begun in another way, such as the place in a stream."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import torch

from elastic_pytorch.state.values.per_rank import PerRank
from elastic_pytorch.state.values.registered import RankGroup
from elastic_pytorch.state_format.payload import memory_of
from elastic_pytorch.state_format.state_encoding import flatten

_loaded: set[str] = set()  # the States that this process has restored: what their objects hold since is no beginning


def refuse_states_of_their_own(group: RankGroup, name: str, objects: dict[str, Any]) -> None:
    """Makes sure that all ranks have begun alike, apart from models and their optimizers. Collective; once for each State of a process.

    A process that has restored this State before tells nothing: its objects have been trained, and those of a new process have not.

    Args:
        group: all ranks.
        name: of the State.
        objects: the registered objects, by name.

    Raises:
        RuntimeError: on all ranks alike; the message names the object and what to use instead.
        UnsupportedValue: a state is not plain data.
    """
    begins = None if name in _loaded else _beginnings(objects)
    _loaded.add(name)
    told = [numbers[0] for numbers in group.gather([0 if begins is None else digest_number(repr(sorted(begins.items())))])]
    other = next((rank for rank, its in enumerate(told) if its != told[0]), None)
    if other is None or 0 in told:
        return
    first, second = group.broadcast(begins, 0), group.broadcast(begins, other)
    known = next(key for key in [*first, *second] if first.get(key) != second.get(key))
    if known not in first or known not in second:
        has, lacks = (0, other) if known in first else (other, 0)
        raise RuntimeError(f"only rank {has} has {known}, and rank {lacks} does not: a State must be the same on all ranks")
    raise RuntimeError(
        f"{known} begins with another state on rank {other} than on rank 0, and State would load rank 0's on all ranks. If each rank has a "
        f"state of its own, register elastic.PerRank({known}). For the place in the data, an ElasticSampler or an ElasticStream fits "
        "groups of any size. If it should begin alike, such as an average of the weights, set the same seed on all ranks"
    )


def _beginnings(objects: dict[str, Any]) -> dict[str, str]:
    """Returns digests of the states, by name; empty for what may differ, as rank 0's replaces it rightly, or as it is kept by rank."""
    return {name: "" if _may_differ(each) else digest_of({name: each.state_dict()}) for name, each in objects.items()}


def _may_differ(each: object) -> bool:
    return isinstance(each, (torch.nn.Module, torch.optim.Optimizer, PerRank)) or getattr(each, "rank_0_counts", False)


def digest_of(tree: Any) -> str:
    """Returns a digest of a state: of its values, whatever the order of its keys and wherever its tensors are."""
    skeleton, tensors = flatten(tree)
    return hashlib.sha256(_canonical(json.loads(skeleton)["tree"], iter(tensors)).encode()).hexdigest()


def _canonical(node: Any, tensors: Iterator[torch.Tensor]) -> str:
    """Returns a skeleton as text, with digests for its tensors."""
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


def digest_number(text: str) -> int:
    """Returns a number that ranks compare instead of a text: positive, in 63 bits."""
    return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1) | 1
