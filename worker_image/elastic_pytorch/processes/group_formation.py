"""Tells the agent when the process group of a warm worker has formed: the end of the phase `init` of an interruption.

The agent and the operator see processes, not groups. The only one who knows that all members have
met is torch's `init_process_group`.
"""

import importlib
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from elastic_pytorch.progress.report import report_group_formed

# Each has the function under its own name.
MODULES = (
    "torch.distributed.distributed_c10d",
    "torch.distributed.device_mesh",
    "torch.distributed",
)


@cache
def install() -> None:
    """Makes `init_process_group` of this process, and of those forked from it, report its success to the agent."""
    reporting: dict[Any, Any] = {}
    for module in map(importlib.import_module, MODULES):
        if (stock := vars(module).get("init_process_group")) is not None:
            vars(module)["init_process_group"] = reporting.setdefault(stock, _reporting(stock))


def _reporting(stock: Callable[..., None]) -> Callable[..., None]:
    @wraps(stock)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        stock(*args, **kwargs)
        report_group_formed()

    return init_process_group
