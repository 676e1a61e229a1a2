"""Nodes, and whether a pod could fit on one of them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_client.reading.node_ends import NodeEnd, find_end

_UNITS = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_QUANTITY = re.compile(r"^([0-9.]+(?:[eE][-+]?[0-9]+)?)([a-zA-Z]*)$")


@dataclass(frozen=True, slots=True)
class NodeView:
    name: str
    ready: bool
    cordoned: bool
    allocatable: Mapping[str, str]  # what pods may ask of it altogether, by resource
    end: NodeEnd | None = None  # that it announces; None: none


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a pod cannot be placed, and what to do."""

    what: str
    do: str = ""


def view_node(manifest: Mapping[str, Any]) -> NodeView:
    status = manifest.get("status") or {}
    ready = any(
        c.get("type") == "Ready" and c.get("status") == "True"
        for c in status.get("conditions") or ()
    )
    cordoned = bool((manifest.get("spec") or {}).get("unschedulable"))
    return NodeView(
        str(manifest["metadata"]["name"]),
        ready,
        cordoned,
        status.get("allocatable") or {},
        find_end(manifest),
    )


def requests_of(pod: Mapping[str, Any]) -> dict[str, float]:
    """What a pod's containers ask for together, by resource, in the base unit."""
    total: dict[str, float] = {}
    for container in pod["spec"].get("containers") or ():
        resources = container.get("resources") or {}
        for name, quantity in (
            (resources.get("limits") or {}) | (resources.get("requests") or {})
        ).items():
            total[name] = total.get(name, 0.0) + parse_quantity(quantity)
    return total


def parse_quantity(text: object) -> float:
    """A Kubernetes quantity such as `500m` or `2Gi`; 0 for what is none."""
    found = _QUANTITY.match(str(text))
    return float(found[1]) * _UNITS.get(found[2], 1.0) if found else 0.0


def shortage_of_room(requests: Mapping[str, float], nodes: Sequence[NodeView]) -> Shortage | None:
    """What stands in the way, as far as the nodes themselves tell; None if each could take the pod were it empty."""
    usable = [node for node in nodes if node.ready and not node.cordoned]
    cordoned = [node.name for node in nodes if node.cordoned]
    unready = [node.name for node in nodes if not node.ready]
    too_much = [
        name
        for name, amount in requests.items()
        if usable and amount > max(_offers(node, name) for node in usable)
    ]
    if too_much:
        name = too_much[0]
        largest = max(_offers(node, name) for node in usable)
        what = f"It asks for {_say(name, requests[name])}; the largest node in use has {_say(name, largest)}."
        return Shortage(
            what,
            f"No node can ever run it: request less {_plain(name)} in spec.template, or add larger nodes.",
        )
    if cordoned or unready:
        parts = (
            [f"{_names(cordoned)} {'is' if len(cordoned) == 1 else 'are'} cordoned"]
            if cordoned
            else []
        )
        parts += (
            [f"{_names(unready)} {'is' if len(unready) == 1 else 'are'} not ready"]
            if unready
            else []
        )
        do = (
            f"If maintenance is over, allow pods on it again:\n  kubectl uncordon {cordoned[0]}"
            if cordoned
            else ""
        )
        do = do or f"See why:\n  kubectl describe node {unready[0]}"
        return Shortage(f"Of {len(nodes)} nodes, {' and '.join(parts)}.", do)
    return None


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
