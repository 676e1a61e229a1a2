"""Leaves a group of gloo whose operations never end.

When a connection breaks, gloo ends the operations that wait for it with an error, except the one
whose message was on its way at that moment (`Pair::signalException` of gloo/transport/tcp/pair.cc
passes over the messages in `tx_` and `rx_`). That operation waits for the group's time-out, half an
hour by default, and the destructor of the group waits for the operation. The longer the messages of
a job, the more often it happens: a broadcast of 32 MB whose receiver was killed hung in most of its
runs.

Such an operation touches no connection any more, and no caller reads its result. A thread of its
own therefore runs the destructor, and the process goes on without it. The thread ends with the
operation, and frees its memory then.
"""

import threading
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

# Together with destroy_deadlock.MAX_SECONDS, less than a worker may take to leave its group.
WAIT_SECONDS = 0.3


def gloo_backends() -> list[Any]:
    """Returns gloo's part of all groups of this process: as long as the list is there, `destroy_process_group` waits for no operation.

    The list is empty for torch before 2.8, whose destructors hold Python's interpreter lock while
    they wait (pytorch/pytorch#154976).
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
    """Empties the list, whose references must be the last ones, and waits for the operations of these groups, though not for long.

    Returns:
        Whether all have ended.
    """
    if not backends:
        return True
    thread = threading.Thread(target=backends.clear, name="lost operations", daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    return not thread.is_alive()
