"""What containers and pods request, and how many processes a worker runs on its devices. Pure.

Device plugins of NVIDIA, AMD and Intel name devices, but also what is none:
`gpu.intel.com/i915_monitoring`, `gpu.intel.com/millicores`, `.../memory.max`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.numbers import parse_quantity
from elastic_pytorch_operator.spec.fields import InvalidJob

Amounts = dict[str, float]  # by resource, in base units
DEVICES = frozenset({"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"})
# Parts of a device, of which CUDA shows one to a process, however many the container has.
PARTS = ("nvidia.com/mig-", "nvidia.com/gpu.shared")
MAX_PROCESSES = 1024  # of a worker
WORDS = ("auto", "cpu", "gpu", "xpu")  # torchrun's own words for what the node has
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")


def count_accelerators(container: Mapping[str, Any]) -> int:
    """How many whole devices of all vendors a container requests."""
    return sum(_whole(amount) for name, amount in _requests(container).items() if name in DEVICES)


def uses_accelerators(container: Mapping[str, Any]) -> bool:
    return any(
        _whole(amount) and (name in DEVICES or name.startswith(PARTS))
        for name, amount in _requests(container).items()
    )


def is_process_count(value: int | str) -> bool:
    text = str(value)
    return text in WORDS or bool(_NUMBER.fullmatch(text) and int(text) <= MAX_PROCESSES)


def processes_per_node(value: int | str | None, container: Mapping[str, Any]) -> str:
    """The value of torchrun's `--nproc-per-node` for that of `spec.nprocPerNode`.

    None is a process for each device of the container, or one. `cpu`, and `auto` without a device,
    are one for each whole core of the container's limit: torchrun would count the node's cores.
    """
    if value is None:
        if (devices := count_accelerators(container)) > MAX_PROCESSES:
            raise InvalidJob(
                "spec.nprocPerNode",
                f"must be a number from 1 to {MAX_PROCESSES} for a container that asks for "
                f"{devices} devices",
            )
        return str(max(1, devices))
    text = str(value)
    if text == "cpu" or (text == "auto" and not uses_accelerators(container)):
        cores = parse_quantity(_stated(container, "limits").get("cpu"))
        return text if cores is None else str(min(max(1, int(cores)), MAX_PROCESSES))
    return text


def pod_requests(spec: Manifest) -> Amounts:
    """A pod's requests as the scheduler counts them.

    Source: `PodRequests` of k8s.io/component-helpers/resource.
    """
    together: Amounts = {}
    for container in spec.get("containers") or ():
        together = _join(together, _amounts(_requests(container)), float.__add__)
    sidecars: Amounts = {}
    alone: Amounts = {}
    for container in spec.get("initContainers") or ():
        beside = _join(sidecars, _amounts(_requests(container)), float.__add__)
        alone = _join(alone, beside, max)
        if container.get("restartPolicy") == "Always":
            sidecars = beside
    total = _join(_join(together, sidecars, float.__add__), alone, max)
    total |= _amounts(_requests(spec))
    return _join(total, _amounts(spec.get("overhead") or {}), float.__add__)


def _requests(holder: Manifest) -> dict[str, object]:
    """The requests of a container or a pod; a limit without a request is one."""
    return {**_stated(holder, "limits"), **_stated(holder, "requests")}


def _amounts(quantities: Mapping[str, object]) -> Amounts:
    return {name: parse_quantity(quantity) or 0.0 for name, quantity in quantities.items()}


def _join(one: Amounts, other: Amounts, combine: Callable[[float, float], float]) -> Amounts:
    return {name: combine(one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}}


def _stated(holder: Manifest, part: str) -> Mapping[str, object]:
    found: Mapping[str, object] = (holder.get("resources") or {}).get(part) or {}
    return found


def _whole(amount: object) -> int:
    """A quantity of an extended resource, a whole number; 0 for what the API server refuses."""
    number = parse_quantity(amount) or 0.0
    return int(number) if number > 0 and number == int(number) else 0
