"""The accelerators that a container asks for, and how many processes a worker runs on them. Pure.

Devices are extended resources, which their vendors' device plugins name: NVIDIA k8s-device-plugin, AMD k8s-device-plugin, Intel GPU
device plugin. The same plugins also name what is no device: `gpu.intel.com/i915_monitoring`, `gpu.intel.com/millicores`, `.../memory.max`.
"""

import re
from collections.abc import Mapping
from typing import Any

from elastic_pytorch_operator.api.numbers import parse_quantity

DEVICES = frozenset({"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"})
# Parts of a device. CUDA shows one of them to a process, however many the container has: they do not add up to more processes.
PARTS = ("nvidia.com/mig-", "nvidia.com/gpu.shared")
MAX_PROCESSES = 1024  # as the schema has it
WORDS = ("auto", "cpu", "gpu", "xpu")  # torchrun's own words for what the node has
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")


def count_accelerators(container: Mapping[str, Any]) -> int:
    """How many whole devices a container asks for, of all vendors together.

    Args:
        container: of a pod template. A request counts where there is no limit, as Kubernetes takes them to be equal.
    """
    return sum(_whole(amount) for name, amount in _resources(container).items() if name in DEVICES)


def uses_accelerators(container: Mapping[str, Any]) -> bool:
    """Whether a container asks for a device, or for a part of one."""
    return any(_whole(amount) and (name in DEVICES or name.startswith(PARTS)) for name, amount in _resources(container).items())


def processes_per_node(value: object, container: Mapping[str, Any]) -> str:
    """The value of torchrun's `--nproc-per-node`.

    Args:
        value: of spec.nprocPerNode; None: a process for each device that the container asks for, else one. `cpu`, and `auto` without a
            device: one for each whole core of the container's limit, if it has one; torchrun would count the node's cores.
        container: the one that trains.

    Raises:
        ValueError: the value is neither a number of processes nor one of torchrun's words, or must be set.
    """
    if value is None:
        if (devices := count_accelerators(container)) > MAX_PROCESSES:
            raise ValueError(f"must be a number from 1 to {MAX_PROCESSES} for a container that asks for {devices} devices")
        return str(max(1, devices))
    text = str(value)
    if isinstance(value, bool) or not (text in WORDS or (_NUMBER.fullmatch(text) and int(text) <= MAX_PROCESSES)):
        raise ValueError(f"must be a number from 1 to {MAX_PROCESSES}, or auto, cpu, gpu or xpu, not {value!r}")
    if text == "cpu" or (text == "auto" and not uses_accelerators(container)):
        cores = parse_quantity(_amounts(container, "limits").get("cpu"))
        return text if cores is None else str(min(max(1, int(cores)), MAX_PROCESSES))
    return text


def _resources(container: Mapping[str, Any]) -> dict[str, object]:
    return {**_amounts(container, "requests"), **_amounts(container, "limits")}


def _amounts(container: Mapping[str, Any], part: str) -> Mapping[str, object]:
    """The limits or the requests of a container; none of those that are malformed."""
    resources = container.get("resources")
    found = resources.get(part) if isinstance(resources, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _whole(amount: object) -> int:
    """A quantity of an extended resource, which is a whole number; 0 for what the API server refuses."""
    number = parse_quantity(amount) or 0.0
    return int(number) if number > 0 and number == int(number) else 0
