"""Which nodes could take a pod? It looks at each node and the pod's spec alone; only the scheduler knows which other pods are there.

The rules are those of kube-scheduler's filters NodeAffinity, TaintToleration and NodeResourcesFit.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.numbers import parse_quantity
from elastic_pytorch_operator.model.announced_ends import Taint
from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.spec.pod_requests import Amounts, pod_requests

_WHOLE = re.compile(r"-?[0-9]{1,18}")  # fits an int64, as the scheduler reads labels


def nodes_for(nodes: Iterable[NodeView], spec: Manifest) -> Iterator[NodeView]:
    """Those of some nodes that could take a pod, were they empty.

    Args:
        nodes: as the API server last reported them.
        spec: of the pod.
    """
    # Once for all nodes: a template may be as large as an object can be.
    requests = {name: amount for name, amount in pod_requests(spec).items() if amount > 0}
    tolerated = cache(partial(tolerates, spec))
    return (node for node in nodes if _could_take(node, spec, requests, tolerated))


def _could_take(node: NodeView, spec: Manifest, requests: Amounts, tolerated: Callable[[Taint], bool]) -> bool:
    selector: Manifest = spec.get("nodeSelector") or {}
    return (
        node.ready
        and not node.unschedulable
        and all(node.labels.get(key) == value for key, value in selector.items())
        and _has_affinity(node, spec)
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


def _has_affinity(node: NodeView, spec: Manifest) -> bool:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    # One term has to match; an empty one matches nothing.
    return any(_matches(node, term) for term in required.get("nodeSelectorTerms") or ())


def _matches(node: NodeView, term: Manifest) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return bool(expressions or fields) and (
        all(_holds(node.labels.get(e.get("key")), e) for e in expressions) and all(_holds(node.name, f) for f in fields)
    )


def _holds(value: str | None, requirement: Manifest) -> bool:
    """Whether a label's value, None where there is none, meets a requirement."""
    values: Sequence[str] = requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            numbers = [int(text) for text in (value, *values) if isinstance(text, str) and _WHOLE.fullmatch(text)]
            if len(values) != 1 or len(numbers) != 2:
                return False
            return numbers[0] > numbers[1] if operator == "Gt" else numbers[0] < numbers[1]
    return False


def _tolerates(toleration: Manifest, taint: Taint) -> bool:
    key, effect, exists = toleration.get("key"), toleration.get("effect"), toleration.get("operator") == "Exists"
    return (
        (not effect or effect == taint.effect)
        and (key == taint.key or (exists and not key))
        and (exists or (toleration.get("value") or "") == taint.value)
    )
