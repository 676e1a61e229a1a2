"""Reports when a warm worker's process group has formed: the end of the phase `init`.

Agent and operator see only processes. Torch's `init_process_group` knows when all members have met.
"""

import importlib
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from elastic_pytorch.progress.report import report_group_formed

MODULES = (
    "torch.distributed.distributed_c10d",
    "torch.distributed.device_mesh",
    "torch.distributed",
)


@cache
def install() -> None:
    """Makes `init_process_group`, in this process and its forks, report to the agent."""
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
