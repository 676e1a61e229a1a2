"""What a pod requests, as the scheduler counts it (`PodRequests` of k8s.io/component-helpers/resource). Pure."""

from collections.abc import Callable

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.numbers import parse_quantity

Amounts = dict[str, float]  # by resource, in base units


def pod_requests(spec: Manifest) -> Amounts:
    """What a pod of this spec requests.

    Containers and native sidecars count together. Each other init container counts alone, beside the sidecars that start before it.
    What the pod itself requests takes the place of that.
    """
    together: Amounts = {}
    for container in spec.get("containers") or ():
        together = _join(together, _requests(container), float.__add__)
    sidecars: Amounts = {}
    alone: Amounts = {}
    for container in spec.get("initContainers") or ():
        beside = _join(sidecars, _requests(container), float.__add__)
        alone = _join(alone, beside, max)
        if container.get("restartPolicy") == "Always":
            sidecars = beside
    total = _join(_join(together, sidecars, float.__add__), alone, max)
    total |= _requests(spec)
    return _join(total, _amounts(spec.get("overhead")), float.__add__)


def _requests(holder: Manifest) -> Amounts:
    """What a container, or a whole pod, requests; a limit without a request is one."""
    resources = holder.get("resources") or {}
    return _amounts(resources.get("limits")) | _amounts(resources.get("requests"))


def _amounts(quantities: Manifest | None) -> Amounts:
    return {name: parse_quantity(quantity) or 0.0 for name, quantity in (quantities or {}).items()}


def _join(one: Amounts, other: Amounts, combine: Callable[[float, float], float]) -> Amounts:
    return {name: combine(one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}}
