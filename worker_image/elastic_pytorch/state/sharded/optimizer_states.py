"""The states of optimizers by the names of their models' parameters, as the ranks of any group know them.

In the format of torch's functions for that, which would have an optimizer make a step that has made
none yet, and which take no state in which a parameter has none: it may have had no gradient until
then.
"""

from collections.abc import Collection, Mapping
from typing import Any

from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.optim import Optimizer

from elastic_pytorch.state.sharded.trees import Tree
from elastic_pytorch.state.values.registered import model_of

# In names, of torch.compile and of activation checkpoints.
WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


def state_by_name(optimizer: Optimizer, registered: Mapping[str, Any]) -> Tree:
    """Returns an optimizer's state.

    Raises:
        ValueError: its model is not registered.
    """
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
    """Returns a state to be filled, of those parameters that have one in what was saved.

    Makes a state if there is none.

    Raises:
        ValueError: its model is not registered.
    """
    if saved:
        make_state(optimizer, registered)
    whole = state_by_name(optimizer, registered)
    return {
        **whole,
        "state": {name: each for name, each in whole["state"].items() if name in saved},
    }


def load_by_name(optimizer: Optimizer, registered: Mapping[str, Any], state: Tree) -> None:
    """Loads what `state_by_name` has returned. Parameters that have no state there have none then.

    Raises:
        ValueError: its model is not registered; or the state does not fit.
    """
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
    """Has an optimizer without a state make one, which is to be replaced: torch has it make a step that changes no weight.

    Raises:
        ValueError: its model is not registered.
    """
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
        "a sharded optimizer is saved by the names of its parameters: register the model that they belong to, too"
    )
