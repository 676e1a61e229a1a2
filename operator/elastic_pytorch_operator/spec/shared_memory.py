"""The memory that the processes of a pod share: /dev/shm of its training container. Pure.

A container runtime gives each container a /dev/shm of 64 MiB. DataLoader workers pass their batches through it, and NCCL its buffers
between the processes of a node. A larger one is a memory-backed emptyDir; what is written there counts as memory of the container.
"""

import posixpath
from collections.abc import Mapping
from typing import Any

from elastic_pytorch_operator.api.manifest import MutableManifest
from elastic_pytorch_operator.api.numbers import parse_quantity
from elastic_pytorch_operator.spec.accelerators import uses_accelerators

FOLDER = "/dev/shm"
VOLUME = "elastic-pytorch-shared-memory"


def shared_memory_size(value: object) -> str:
    """`spec.sharedMemorySize` as text; empty if it is unset.

    Raises:
        ValueError: the value is no quantity, or a negative one.
    """
    if value is None:
        return ""
    amount = None if isinstance(value, bool) else parse_quantity(value)
    if amount is None or amount < 0:
        raise ValueError(f'must be a quantity such as 8Gi, or "0" for none, not {value!r}')
    return str(value)


def add_shared_memory(spec: MutableManifest, container: MutableManifest, size: str) -> None:
    """Gives a pod's training container a /dev/shm, unless the template has decided on it.

    Args:
        spec: the pod's, which is changed.
        container: the one of its containers that trains; changed as well.
        size: the most that it may hold; empty: as much as the container's memory limit and the node allow, for a container that asks
            for accelerators.
    """
    wanted = bool(parse_quantity(size)) if size else uses_accelerators(container)
    if not wanted or spec.get("hostIPC") or any(map(_decides, container.get("volumeMounts") or ())):
        return
    medium = {"medium": "Memory"}
    volume = {"name": VOLUME, "emptyDir": {**medium, "sizeLimit": size} if size else medium}
    spec["volumes"] = [*(spec.get("volumes") or []), volume]
    container["volumeMounts"] = [*(container.get("volumeMounts") or []), {"name": VOLUME, "mountPath": FOLDER}]


def _decides(mount: Mapping[str, Any]) -> bool:
    return posixpath.normpath(str(mount.get("mountPath"))) in (FOLDER, posixpath.dirname(FOLDER))
