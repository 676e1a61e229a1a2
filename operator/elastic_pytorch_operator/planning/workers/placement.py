"""Which nodes could take a pod? It looks at each node and the pod's spec alone; only the scheduler knows which other pods are there.

The rules are those of kube-scheduler's filters NodeAffinity, TaintToleration and NodeResourcesFit.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.numbers import parse_quantity
from elastic_pytorch_operator.model.announced_ends import Taint
from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.spec.resources import Amounts, pod_requests

_WHOLE = re.compile(r"-?[0-9]{1,18}")  # fits an int64, as the scheduler reads labels


class Requirement:
    """A NodeSelectorRequirement, whose values are a set: there may be thousands of them, for thousands of nodes.

    Args:
        manifest: of the requirement.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.key: str = manifest.get("key") or ""
        self._operator = manifest.get("operator")
        values = [value for value in manifest.get("values") or () if isinstance(value, str)]
        self._values = frozenset(values)
        self._bound = int(values[0]) if len(values) == 1 and _WHOLE.fullmatch(values[0]) else None

    def holds(self, value: str | None) -> bool:
        """Whether a label's value, None where there is none, meets the requirement."""
        match self._operator:
            case "In":
                return value in self._values
            case "NotIn":
                return value not in self._values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt" as operator if self._bound is not None and value is not None and _WHOLE.fullmatch(value):
                return int(value) > self._bound if operator == "Gt" else int(value) < self._bound
        return False


class Term(NamedTuple):
    """A NodeSelectorTerm: a node has to meet all of it, and an empty one matches nothing."""

    expressions: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    def matches(self, node: NodeView) -> bool:
        """Whether a node meets the term."""
        if not (self.expressions or self.fields):
            return False
        return all(e.holds(node.labels.get(e.key)) for e in self.expressions) and all(f.holds(node.name) for f in self.fields)


def nodes_for(nodes: Iterable[NodeView], spec: Manifest) -> Iterator[NodeView]:
    """Those of some nodes that could take a pod, were they empty.

    Args:
        nodes: as the API server last reported them.
        spec: of the pod.
    """
    # Once for all nodes: a template may be as large as an object can be.
    requests = {name: amount for name, amount in pod_requests(spec).items() if amount > 0}
    tolerated = cache(partial(tolerates, spec))
    terms = _required_terms(spec)
    return (node for node in nodes if _could_take(node, spec, terms, requests, tolerated))


def _could_take(
    node: NodeView, spec: Manifest, terms: Sequence[Term] | None, requests: Amounts, tolerated: Callable[[Taint], bool]
) -> bool:
    selector: Manifest = spec.get("nodeSelector") or {}
    return (
        node.ready
        and not node.unschedulable
        and all(node.labels.get(key) == value for key, value in selector.items())
        and (terms is None or any(term.matches(node) for term in terms))
        and all(map(tolerated, node.taints))
        and all((parse_quantity(node.allocatable.get(name)) or 0.0) >= amount for name, amount in requests.items())
    )


def tolerates(spec: Manifest, taint: Taint) -> bool:
    """Whether a pod tolerates a taint.

    Args:
        spec: of the pod.
        taint: of a node.
    """
    return any(_tolerates(toleration, taint) for toleration in spec.get("tolerations") or ())


def _required_terms(spec: Manifest) -> list[Term] | None:
    """The terms of which a node has to match one; None: it has to match nothing."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return None
    return [
        Term(*(tuple(map(Requirement, term.get(kind) or ())) for kind in ("matchExpressions", "matchFields")))
        for term in required.get("nodeSelectorTerms") or ()
    ]


def _tolerates(toleration: Manifest, taint: Taint) -> bool:
    key, effect, exists = toleration.get("key"), toleration.get("effect"), toleration.get("operator") == "Exists"
    return (
        (not effect or effect == taint.effect)
        and (key == taint.key or (exists and not key))
        and (exists or (toleration.get("value") or "") == taint.value)
    )
