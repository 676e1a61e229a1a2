"""Which nodes new pods keep away from, and which nodes could take a pod, were they empty.

The rules of the latter are those of kube-scheduler's filters NodeAffinity, TaintToleration and
NodeResourcesFit.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.numbers import parse_quantity
from elastic_pytorch_operator.model.announced_ends import AnnouncedEnd, Taint
from elastic_pytorch_operator.model.observed import NodeView, Observed
from elastic_pytorch_operator.planning.nodes.objections import (
    Objections,
    Weight,
    doubtful_nodes,
    weigh_end,
)
from elastic_pytorch_operator.spec.resources import Amounts, pod_requests

# A pod names few nodes of any cluster: the API server refuses annotations over 256 KiB.
MAX_AVOIDED = 200
MAX_UNWANTED = 50
_WHOLE = re.compile(r"-?[0-9]{1,18}")  # fits an int64, as the scheduler reads labels


class AvoidedNodes(NamedTuple):
    never: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()  # as `Weight.LAST`


def nodes_to_avoid(observed: Observed, template: Manifest, objections: Objections) -> AvoidedNodes:
    """A node that ends for certain is worse than none, and a doubtful one worse than any other.

    One that may end is as good as any while it is there: if a pod waited, an autoscaler might buy
    another node.
    """
    doubtful = doubtful_nodes(objections)
    marked = (node for node in observed.nodes.values() if node.end)
    ends = {node.name: node.end for node in nodes_for(marked, template["spec"]) if node.end}
    weights = {name: weigh_end(end, observed.time) for name, end in ends.items()}
    sure = {name for name, weight in weights.items() if weight is Weight.NEVER}
    last = (name for name, weight in weights.items() if weight is Weight.LAST)
    soft = {name for name in last if not _repels(ends[name], template)}
    never = sure
    if doubtful and _others_have_room({*sure, *doubtful}, observed, template):
        never = {*sure, *doubtful}
    own = {pod.node for pod in observed.pods}
    unwanted = {*doubtful, *soft} - never
    return AvoidedNodes(
        _first(never, MAX_AVOIDED, doubtful, own), _first(unwanted, MAX_UNWANTED, doubtful, own)
    )


def misled_pods(observed: Observed, objections: Objections) -> frozenset[str]:
    """The pods that wait for a node and avoid one that lives on, or is the only one left."""
    doubtful = doubtful_nodes(objections)
    waiting = [pod for pod in observed.pods if pod.avoids and not pod.node]
    weights: dict[str, Weight] = {}
    for name in frozenset[str]().union(*(pod.avoids for pod in waiting)):
        node = observed.nodes.get(name)
        if node is not None and node.ready and not node.unschedulable:
            doubt = Weight.DOUBTFUL if name in doubtful else Weight.ANY
            weights[name] = max(weigh_end(node.end, observed.time), doubt)
    good = {name for name, weight in weights.items() if weight is Weight.ANY}
    left = {name for name, weight in weights.items() if weight is not Weight.NEVER}
    return frozenset(
        pod.name
        for pod in waiting
        if not pod.avoids.isdisjoint(left if pod.unschedulable else good)
    )


def _others_have_room(avoided: Collection[str], observed: Observed, template: Manifest) -> bool:
    # The scheduler has found none for a pod that avoids some.
    if any(pod.unschedulable and pod.avoids for pod in observed.pods):
        return False
    others = (node for node in observed.nodes.values() if node.name not in avoided)
    return any(nodes_for(others, template["spec"]))


def _repels(end: AnnouncedEnd, template: Manifest) -> bool:
    """Whether a taint that the pod does not tolerate has the scheduler prefer other nodes."""
    taint = end.taint
    if taint is None or taint.effect != "PreferNoSchedule":
        return False
    return not tolerates(template["spec"], taint)


def _first(
    nodes: Iterable[str], limit: int, known: Collection[str], own: Collection[str]
) -> tuple[str, ...]:
    """As many as a pod may name, first those known to be bad, then those where the job has been."""
    ranked = sorted(nodes, key=lambda name: (name not in known, name not in own, name))
    return tuple(sorted(ranked[:limit]))


class Requirement:
    """A NodeSelectorRequirement, whose values may be the names of thousands of nodes."""

    def __init__(self, manifest: Manifest) -> None:
        self.key: str = manifest.get("key") or ""
        self._operator = manifest.get("operator")
        values = [value for value in manifest.get("values") or () if isinstance(value, str)]
        self._values = frozenset(values)
        self._bound = int(values[0]) if len(values) == 1 and _WHOLE.fullmatch(values[0]) else None

    def holds(self, value: str | None) -> bool:
        match self._operator:
            case "In":
                return value in self._values
            case "NotIn":
                return value not in self._values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt" as operator if (
                self._bound is not None and value is not None and _WHOLE.fullmatch(value)
            ):
                return int(value) > self._bound if operator == "Gt" else int(value) < self._bound
        return False


class Term(NamedTuple):
    """A NodeSelectorTerm: an empty one matches nothing."""

    expressions: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    def matches(self, node: NodeView) -> bool:
        if not (self.expressions or self.fields):
            return False
        return all(e.holds(node.labels.get(e.key)) for e in self.expressions) and all(
            f.holds(node.name) for f in self.fields
        )


def nodes_for(nodes: Iterable[NodeView], spec: Manifest) -> Iterator[NodeView]:
    # Once for all nodes: a template may be as large as an object can be.
    requests = {name: amount for name, amount in pod_requests(spec).items() if amount > 0}
    tolerated = cache(partial(tolerates, spec))
    terms = _required_terms(spec)
    return (node for node in nodes if _could_take(node, spec, terms, requests, tolerated))


def _could_take(
    node: NodeView,
    spec: Manifest,
    terms: Sequence[Term] | None,
    requests: Amounts,
    tolerated: Callable[[Taint], bool],
) -> bool:
    selector: Manifest = spec.get("nodeSelector") or {}
    return (
        node.ready
        and not node.unschedulable
        and all(node.labels.get(key) == value for key, value in selector.items())
        and (terms is None or any(term.matches(node) for term in terms))
        and all(map(tolerated, node.taints))
        and all(
            (parse_quantity(node.allocatable.get(name)) or 0.0) >= amount
            for name, amount in requests.items()
        )
    )


def tolerates(spec: Manifest, taint: Taint) -> bool:
    return any(_tolerates(toleration, taint) for toleration in spec.get("tolerations") or ())


def _required_terms(spec: Manifest) -> list[Term] | None:
    """A node has to match one of them; None: there is no such rule."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return None

    def read(term: Manifest, kind: str) -> tuple[Requirement, ...]:
        return tuple(map(Requirement, term.get(kind) or ()))

    terms = required.get("nodeSelectorTerms") or ()
    return [Term(read(term, "matchExpressions"), read(term, "matchFields")) for term in terms]


def _tolerates(toleration: Manifest, taint: Taint) -> bool:
    key, effect = toleration.get("key"), toleration.get("effect")
    exists = toleration.get("operator") == "Exists"
    return (
        (not effect or effect == taint.effect)
        and (key == taint.key or (exists and not key))
        and (exists or (toleration.get("value") or "") == taint.value)
    )
