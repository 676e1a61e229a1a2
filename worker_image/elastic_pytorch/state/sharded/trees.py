"""States as trees with sharded tensors."""

from copy import copy
from typing import Any

from torch.distributed.tensor import DTensor

Keys = tuple[Any, ...]  # the keys that lead to a value in a tree
Tree = dict[Any, Any]


def taken_apart(tree: Tree) -> tuple[dict[Keys, DTensor], Tree]:
    """Returns a tree's sharded tensors by their keys, and the tree without them.

    The rest keeps its types, such as that of a model's state, which has its modules' versions.
    """
    shards: dict[Keys, DTensor] = {}

    def without_shards(value: Any, keys: Keys) -> Any:
        if isinstance(value, DTensor):
            shards[keys] = value
            return None
        if not isinstance(value, dict | list):
            return value
        items = value.items() if isinstance(value, dict) else enumerate(value)
        changed = {
            key: rest
            for key, each in items
            if (rest := without_shards(each, (*keys, key))) is not each
        }
        rest_of = copy(value) if changed else value
        for key, rest in changed.items():
            rest_of[key] = rest
        return rest_of

    rest = without_shards(tree, ())
    _refuse_summands(shards)
    _refuse_equal_names(shards)
    return shards, rest


def _refuse_summands(shards: dict[Keys, DTensor]) -> None:
    for keys, tensor in shards.items():
        if any(placement.is_partial() for placement in tensor.placements):
            raise RuntimeError(
                f"{name_of(keys)} is a DTensor with a Partial placement, "
                "of which each rank has a summand: call its redistribute with Shard or Replicate "
                "before it is kept"
            )


def _refuse_equal_names(shards: dict[Keys, DTensor]) -> None:
    named: dict[str, Keys] = {}
    for keys in shards:
        if (other := named.setdefault(name_of(keys), keys)) != keys:
            raise RuntimeError(
                f"the tensors at {other} and at {keys} are both called {name_of(keys)} in a "
                "checkpoint: rename one"
            )


def insert(tree: Any, keys: Keys, value: Any) -> None:
    for key in keys[:-1]:
        tree = tree[key]
    tree[keys[-1]] = value


def look_up(tree: Any, keys: Keys) -> Any:
    for key in keys:
        try:
            tree = tree[key]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def name_of(keys: Keys) -> str:
    return ".".join(map(str, keys))
