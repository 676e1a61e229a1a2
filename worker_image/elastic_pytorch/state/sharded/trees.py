"""States as trees of dicts and lists, with sharded tensors in them."""

from typing import Any

from torch.distributed.tensor import DTensor

Keys = tuple[Any, ...]  # the keys that lead to a value in a tree
Tree = dict[Any, Any]


def taken_apart(tree: Tree) -> tuple[dict[Keys, DTensor], Tree]:
    """Returns the sharded tensors of a tree by the keys that lead to them, and the tree without them."""
    shards: dict[Keys, DTensor] = {}

    def without_shards(value: Any, keys: Keys) -> Any:
        if isinstance(value, DTensor):
            shards[keys] = value
            return None
        if isinstance(value, dict):
            return {key: without_shards(each, (*keys, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [without_shards(each, (*keys, number)) for number, each in enumerate(value)]
        return value

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
