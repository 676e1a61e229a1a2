"""Nodes, and whether a pod could fit on one of them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_client.reading.node_ends import NodeEnd, find_end

_UNITS = {unit: 1000.0**power for power, unit in enumerate(("n", "u", "m", "", *"kMGTPE"), -3)}
_UNITS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)}
_QUANTITY = re.compile(r"^([0-9.]+(?:[eE][-+]?[0-9]+)?)([a-zA-Z]*)$")


@dataclass(frozen=True, slots=True)
class NodeView:
    name: str
    ready: bool
    cordoned: bool
    allocatable: Mapping[str, str]  # for all pods together, by resource
    end: NodeEnd | None = None


@dataclass(frozen=True, slots=True)
class Shortage:
    what: str
    do: str = ""


def view_node(manifest: Mapping[str, Any]) -> NodeView:
    status = manifest.get("status") or {}
    conditions = status.get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    cordoned = bool((manifest.get("spec") or {}).get("unschedulable"))
    name, allocatable = str(manifest["metadata"]["name"]), status.get("allocatable") or {}
    return NodeView(name, ready, cordoned, allocatable, find_end(manifest))


def requests_of(pod: Mapping[str, Any]) -> dict[str, float]:
    """The requests of a pod's containers together, by resource, in the base unit."""
    total: dict[str, float] = {}
    for container in pod["spec"].get("containers") or ():
        resources = container.get("resources") or {}
        wanted = (resources.get("limits") or {}) | (resources.get("requests") or {})
        for name, quantity in wanted.items():
            total[name] = total.get(name, 0.0) + parse_quantity(quantity)
    return total


def parse_quantity(text: object) -> float:
    """A Kubernetes quantity such as `500m` or `2Gi`; 0 for another text."""
    found = _QUANTITY.match(str(text))
    return float(found[1]) * _UNITS.get(found[2], 1.0) if found else 0.0


def shortage_of_room(requests: Mapping[str, float], nodes: Sequence[NodeView]) -> Shortage | None:
    """Why no node can take a pod, by the nodes themselves; None if each could, were it empty."""
    usable = [node for node in nodes if node.ready and not node.cordoned]
    cordoned = [node.name for node in nodes if node.cordoned]
    unready = [node.name for node in nodes if not node.ready]
    largest = {name: max((_offers(n, name) for n in usable), default=0.0) for name in requests}
    too_much = [name for name, amount in requests.items() if usable and amount > largest[name]]
    if too_much:
        name = too_much[0]
        asked, has = _say(name, requests[name]), _say(name, largest[name])
        return Shortage(
            f"It asks for {asked}; the largest node in use has {has}.",
            f"No node can ever run it: request less {_plain(name)} in spec.template, or add larger "
            "nodes.",
        )
    if not cordoned and not unready:
        return None
    parts = [
        f"{_names(hit)} {'is' if len(hit) == 1 else 'are'} {what}"
        for hit, what in ((cordoned, "cordoned"), (unready, "not ready"))
        if hit
    ]
    if cordoned:
        do = f"If maintenance is over, allow pods on it again:\n  kubectl uncordon {cordoned[0]}"
    else:
        do = f"See why:\n  kubectl describe node {unready[0]}"
    return Shortage(f"Of {len(nodes)} nodes, {' and '.join(parts)}.", do)


def _offers(node: NodeView, resource: str) -> float:
    return parse_quantity(node.allocatable.get(resource, "0"))


def _names(names: Iterable[str]) -> str:
    first, *rest = list(names)
    return first if not rest else f"{first} and {len(rest)} more"


def _plain(resource: str) -> str:
    return {"cpu": "CPU", "nvidia.com/gpu": "GPUs"}.get(resource, resource)


def _say(resource: str, amount: float) -> str:
    if resource in ("memory", "ephemeral-storage"):
        return f"{amount / 2**30:.3g} GiB of {_plain(resource)}"
    return f"{amount:.4g} {_plain(resource)}"
