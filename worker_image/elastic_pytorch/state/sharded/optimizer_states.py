"""Optimizers' states by the parameters' names, which a group of any size knows.

The format is that of torch's functions for this. These would have a new optimizer make a step, and
refuse a parameter without a state, such as one that had no gradient so far.
"""

from collections.abc import Collection, Mapping
from typing import Any

from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.optim import Optimizer

from elastic_pytorch.state.sharded.trees import Tree
from elastic_pytorch.state.values.registered import model_of

# Parts of names, from torch.compile and activation checkpoints.
WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


def state_by_name(optimizer: Optimizer, registered: Mapping[str, Any]) -> Tree:
    names, state = _names(optimizer, registered), optimizer.state_dict()
    groups = [
        {**group, "params": [names[number] for number in group["params"]]}
        for group in state["param_groups"]
    ]
    return {
        "state": {names[number]: each for number, each in state["state"].items()},
        "param_groups": groups,
    }


def template_by_name(
    optimizer: Optimizer, registered: Mapping[str, Any], saved: Collection[str]
) -> Tree:
    """Returns a state to be filled, of the parameters in `saved`."""
    if saved:
        make_state(optimizer, registered)
    whole = state_by_name(optimizer, registered)
    return {
        **whole,
        "state": {name: each for name, each in whole["state"].items() if name in saved},
    }


def load_by_name(optimizer: Optimizer, registered: Mapping[str, Any], state: Tree) -> None:
    names, groups = _names(optimizer, registered), []
    for own in optimizer.state_dict()["param_groups"]:
        params = {names[number] for number in own["params"]}
        saved = (each for each in state["param_groups"] if params & set(each["params"]))
        groups.append({**own, **next(saved, {}), "params": own["params"]})
    numbered = {
        number: state["state"][name] for number, name in enumerate(names) if name in state["state"]
    }
    optimizer.load_state_dict({"state": numbered, "param_groups": groups})


def make_state(optimizer: Optimizer, registered: Mapping[str, Any]) -> None:
    """Has a new optimizer make a state, by a step that changes no weight, to be replaced."""
    get_optimizer_state_dict(_model_of(optimizer, registered), optimizer)


def _names(optimizer: Optimizer, registered: Mapping[str, Any]) -> list[str]:
    names = {
        id(parameter): name
        for name, parameter in _model_of(optimizer, registered).named_parameters()
    }
    found = [
        names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]
    ]
    for wrapper in WRAPPERS:
        found = [name.replace(wrapper, "") for name in found]
    return found


def _model_of(optimizer: Optimizer, registered: Mapping[str, Any]) -> nn.Module:
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for each in map(model_of, registered.values()):
        if isinstance(each, nn.Module) and own <= {
            id(parameter) for parameter in each.parameters()
        }:
            return each
    raise ValueError(
        "a sharded optimizer is saved by the names of its parameters: "
        "register the model that they belong to, too"
    )
