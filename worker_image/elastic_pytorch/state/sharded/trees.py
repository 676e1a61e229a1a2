"""States as trees of dicts and lists, with sharded tensors in them."""

from copy import copy
from typing import Any

from torch.distributed.tensor import DTensor

Keys = tuple[Any, ...]  # the keys that lead to a value in a tree
Tree = dict[Any, Any]


def taken_apart(tree: Tree) -> tuple[dict[Keys, DTensor], Tree]:
    """Returns the sharded tensors of a tree by the keys that lead to them, and the tree without them.

    What has none is left as it is. The rest keeps its type, such as that of a model's state, which has the versions of its modules.
    """
    shards: dict[Keys, DTensor] = {}

    def without_shards(value: Any, keys: Keys) -> Any:
        if isinstance(value, DTensor):
            shards[keys] = value
            return None
        if not isinstance(value, dict | list):
            return value
        items = value.items() if isinstance(value, dict) else enumerate(value)
        changed = {key: rest for key, each in items if (rest := without_shards(each, (*keys, key))) is not each}
        rest_of = copy(value) if changed else value
        for key, rest in changed.items():
            rest_of[key] = rest
        return rest_of

    return shards, without_shards(tree, ())


def insert(tree: Any, keys: Keys, value: Any) -> None:
    """Puts a value where keys lead to."""
    for key in keys[:-1]:
        tree = tree[key]
    tree[keys[-1]] = value


def look_up(tree: Any, keys: Keys) -> Any:
    """Returns the value where keys lead to; None: there is none."""
    for key in keys:
        try:
            tree = tree[key]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def name_of(keys: Keys) -> str:
    """Returns keys as one name, for messages and for files."""
    return ".".join(map(str, keys))
