"""The objects that are registered with a State."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from elastic_pytorch.group.rank_group import RankGroup
from elastic_pytorch.log import logger
from elastic_pytorch.memory.mapped_state import MappedState
from elastic_pytorch.state.options import Options, refuse_options
from elastic_pytorch.state_format.state_encoding import flatten, unflatten


def is_stateful(each: object) -> bool:
    return hasattr(each, "state_dict") and hasattr(each, "load_state_dict")


def innermost(each: Any) -> Any:
    """Returns a model without DistributedDataParallel and torch.compile."""
    name = "module" if isinstance(each, DistributedDataParallel) else "_orig_mod"
    # Not by getattr: a model around a compiled one, such as an adapter's, may hand on its names.
    inner = dict(each.named_children()).get(name) if isinstance(each, torch.nn.Module) else None
    return each if inner is None else innermost(inner)


def model_of(each: Any) -> Any:
    """Returns the model of which a `Trained` keeps a part, or the object itself."""
    return getattr(each, "trained_model", each)


class Registered:
    """Objects with a `state_dict`, and plain values, which are its attributes."""

    def __new__(cls, /, *_: object, **registered: Any) -> Any:
        """Makes a ShardedState if an object is sharded."""
        sharded = any(_is_sharded(each) for each in registered.values() if is_stateful(each))
        return super().__new__(cls._kind_for_shards() if sharded else cls)

    @classmethod
    def _kind_for_shards(cls) -> "type[Registered]":
        return cls

    def __init__(self, registered: dict[str, Any]) -> None:
        taken = [name for name in registered if hasattr(type(self), name) or name.startswith("_")]
        if taken:
            raise ValueError(f"{', '.join(taken)}: State has a use of its own for this name")
        self._objects = {
            key: innermost(each) for key, each in registered.items() if is_stateful(each)
        }
        self._values = {key: each for key, each in registered.items() if key not in self._objects}
        refuse_options(self._values)

    def _holds(self, each: object) -> bool:
        return any(model_of(known) is innermost(each) for known in self._objects.values())

    def _advance(self) -> None:
        for each in self._objects.values():
            if (advance := getattr(each, "advance", None)) is not None:
                advance()

    def _objects_of(self, kind: type) -> list[Any]:
        return [each for each in self._objects.values() if isinstance(each, kind)]

    def _plain(self, tree: dict[str, Any]) -> Any:
        """Returns a state without the ranks' own parts."""
        return tree

    def _refuse_options(self, options: Options) -> None:
        if not options.memory:
            raise ValueError(
                "memory=False is for sharded models: others are written to the disk from the pod's "
                "memory"
            )
        if (initial := options.initial) is None:
            return
        if not callable(initial):
            raise ValueError(
                "initial must be a function without arguments that loads the weights, "
                "as in lambda: model.load_state_dict(pretrained())"
            )
        for name, each in self._objects.items():
            if model_of(each) is not each:
                raise ValueError(
                    f"{name}: rank 0 alone calls initial, and Trained sends no frozen weights to "
                    "the others: load them on all ranks before restore()"
                )

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(f"nothing of the name {name} is registered with this State")
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        values = self.__dict__.get("_values", {})
        if name in values:
            values[name] = value
        elif name.startswith("_"):
            super().__setattr__(name, value)
        else:
            raise AttributeError(f"register {name} first: State(..., {name}=...)")


def refuse_sharded(objects: dict[str, Any], instead: str) -> None:
    refuse_foreign_sharding(objects)
    for name, each in objects.items():
        if _is_sharded(each):
            raise RuntimeError(f"{name} is sharded, so no rank has all of it: {instead}")


def _is_sharded(each: Any) -> bool:
    # By class name, here and below, as the import of their modules takes long.
    if any("DTensor" in _names(parameter) for parameter in _parameters(each)):
        return True
    # Its parameters may be gathered at this moment.
    return any("FSDPModule" in _names(module) for module in _modules(each))


def refuse_foreign_sharding(objects: dict[str, Any]) -> None:
    """Raises a RuntimeError for objects whose shards neither State nor ShardedState can keep."""
    for name, each in objects.items():
        parameters = list(_parameters(each))
        flat = any(getattr(parameter, "_is_flat_param", False) for parameter in parameters)
        if flat or any("FullyShardedDataParallel" in _names(part) for part in _modules(each)):
            raise RuntimeError(
                f"{name} is a FullyShardedDataParallel, whose state_dict is collective: "
                "shard it with torch.distributed.fsdp.fully_shard before State is made"
            )
        deepspeed = any(
            kind.__module__.partition(".")[0] == "deepspeed" for kind in type(each).__mro__
        )
        if deepspeed or any(hasattr(parameter, "ds_id") for parameter in parameters):
            raise RuntimeError(
                f"{name} is kept in parts by DeepSpeed, so no rank has all of it: "
                "give the engine to elastic_pytorch.deepspeed.DeepSpeedState, "
                "and register neither its model nor its optimizer"
            )
        if "ZeroRedundancyOptimizer" in _names(each):
            raise RuntimeError(
                f"{name} is a ZeroRedundancyOptimizer, of whose state each rank has a part: "
                "use the optimizer that it wraps, or shard the model with "
                "torch.distributed.fsdp.fully_shard before State is made"
            )


def put_back(
    objects: dict[str, Any],
    states: dict[str, Any],
    where: str,
    mapped: MappedState | None = None,
    load: Callable[[Any, Any], object] = lambda each, state: each.load_state_dict(state),
) -> None:
    """Loads states, by name, into the registered objects; `where` is for messages.

    The tensors in `mapped` memory are valid for this call only; without it they may be kept.
    """
    for name, each in objects.items():
        if name not in states:
            logger.warning("%s has no %s: it stays as it is", where, name)
            continue
        optimizer = isinstance(each, torch.optim.Optimizer)
        state = states[name]
        # Modules copy what they load; for optimizers see below.
        if mapped is not None and not optimizer and not isinstance(each, torch.nn.Module):
            state = own_copy(state)
        if optimizer:
            each.state.clear()  # a GPU may not have room for both the old and the new state
        try:
            load(each, state)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            raise RuntimeError(
                f"{where} does not fit the {name} of this script: {error}"
            ) from error
        if mapped is not None and optimizer:
            _copy_kept(each, mapped)
        if hasattr(each, "param_groups") and hasattr(each, "zero_grad"):
            each.zero_grad(set_to_none=True)  # left over from an interrupted step


def own_copy(tree: Any) -> Any:
    skeleton, tensors = flatten(tree)
    return unflatten(skeleton, [tensor.clone() for tensor in tensors])


def _copy_kept(optimizer: torch.optim.Optimizer, mapped: MappedState) -> None:
    """Clones mapped tensors that an optimizer keeps, as it does on the right device."""
    for state in optimizer.state.values():
        for key, value in state.items() if isinstance(state, dict) else ():
            if isinstance(value, torch.Tensor) and mapped.holds(value):
                state[key] = value.clone()


def describe(objects: dict[str, Any]) -> dict[str, str]:
    """Returns types and shapes of the models' parameters, by name; empty if lazy."""
    return {
        f"{name}.{path}": "" if is_lazy(parameter) else f"{parameter.dtype} {list(parameter.shape)}"
        for name, each in ((name, model_of(each)) for name, each in objects.items())
        if isinstance(each, torch.nn.Module)
        for path, parameter in each.named_parameters()
    }


def refuse_unlike(group: RankGroup, description: dict[str, str], numbers: Sequence[int]) -> None:
    """Raises a RuntimeError, on all ranks, with the first difference from rank 0's description.

    Collective, if ranks differ. `numbers` has the `digest_number` of each rank's.
    """
    for rank, its in enumerate(numbers):
        if its == numbers[0]:
            continue
        first, other = group.broadcast(description, 0), group.broadcast(description, rank)
        if (difference := first_difference(first, other)) is not None:
            raise RuntimeError(
                f"rank {rank} has something else registered than rank 0: {difference}. "
                "Each pod keeps the state for the whole group: a State must be the same on all "
                "ranks. A model that differs from rank to rank is kept as DTensors; or, "
                "as the stages of a pipeline, by ShardedState"
            )


def first_difference(
    first: dict[str, str], other: dict[str, str], first_rank: int = 0
) -> str | None:
    for path in [*first, *(path for path in other if path not in first)]:
        mine, its = first.get(path), other.get(path)
        if mine is None or its is None:
            return f"only {f'rank {first_rank}' if its is None else 'that rank'} has {path}"
        if mine and its and mine != its:
            return f"{path} is {mine} on rank {first_rank}, and {its} on that rank"
    return None


def _modules(each: Any) -> Iterable[torch.nn.Module]:
    each = model_of(each)
    return each.modules() if isinstance(each, torch.nn.Module) else ()


def _parameters(each: Any) -> Iterator[Any]:
    each = model_of(each)
    if isinstance(each, torch.nn.Module):
        yield from each.parameters()
    elif isinstance(each, torch.optim.Optimizer):
        for group in each.param_groups:
            yield from group["params"]


def _names(each: object) -> set[str]:
    return {kind.__name__ for kind in type(each).__mro__}
