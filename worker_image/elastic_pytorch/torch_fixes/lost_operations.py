"""Leaves a group of gloo whose operations never end.

When a connection breaks, gloo does not end an operation whose message was on its way
(`Pair::signalException` of gloo/transport/tcp/pair.cc passes over the messages in `tx_` and `rx_`).
It waits for the group's time-out, half an hour by default, and the group's destructor waits for it.

Such an operation uses no connection, and nothing reads its result. So another thread runs the
destructor, and ends with the operation.
"""

import threading
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

# With destroy_deadlock.MAX_SECONDS, less than a worker has to leave its group.
WAIT_SECONDS = 0.3


def gloo_backends() -> list[Any]:
    """While this list exists, the destruction of groups waits for no operations.

    It is empty for torch before 2.8, whose destructors hold Python's interpreter lock while they
    wait (pytorch/pytorch#154976).
    """
    gloo = getattr(distributed_c10d, "ProcessGroupGloo", None)
    if gloo is None or torch.__version__ < "2.8":
        return []
    return [
        backend
        for group in distributed_c10d._world.pg_names
        if (backend := _on_cpu(group)) and isinstance(backend, gloo)
    ]


def _on_cpu(group: dist.ProcessGroup) -> Any:
    cpu = torch.device("cpu")
    return group._get_backend(cpu) if cpu in group._device_types else None


def end(backends: list[Any]) -> bool:
    """Drops the last references and waits briefly; returns whether all operations ended."""
    if not backends:
        return True
    thread = threading.Thread(target=backends.clear, name="lost operations", daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    return not thread.is_alive()
