"""What a pod has from its unit: the label, and the places beside the others of its unit and apart from those of other units. Pure."""

from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import MutableManifest
from elastic_pytorch_operator.spec.job import Job

APART_WEIGHT = 50  # of 100; what the template prefers may weigh more
_REQUIRED, _PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def place_in_unit(pod: MutableManifest, job: Job, index: int) -> None:
    """Labels a worker pod with its unit, and places it as `scheduling.unitTopology` says.

    The first pod of a unit is placed anywhere, although it has to be beside its unit: the scheduler lets a pod begin that its own affinity
    selects (https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity).

    Args:
        pod: is changed. Its template's own affinity stays.
        job: with its units.
        index: of the worker.
    """
    unit = str(index // job.unit_replicas)
    pod["metadata"]["labels"][names.LABEL_UNIT] = unit
    topology = job.scheduling.unit_topology
    if topology is None:
        return
    workers = {names.LABEL_JOB_NAME: job.key.name, names.LABEL_ROLE: names.ROLE_WORKER}
    together = _term({"matchLabels": {**workers, names.LABEL_UNIT: unit}}, topology.key)
    others = [{"key": names.LABEL_UNIT, "operator": "NotIn", "values": [unit]}]
    apart = _term({"matchLabels": workers, "matchExpressions": others}, topology.key)
    affinity = pod["spec"].get("affinity") or {}
    if topology.required:
        affinity = _with(affinity, "podAffinity", _REQUIRED, together)
    else:
        affinity = _with(affinity, "podAffinity", _PREFERRED, {"weight": 100, "podAffinityTerm": together})
    pod["spec"]["affinity"] = _with(affinity, "podAntiAffinity", _PREFERRED, {"weight": APART_WEIGHT, "podAffinityTerm": apart})


def _term(selector: MutableManifest, key: str) -> MutableManifest:
    return {"labelSelector": selector, "topologyKey": key}


def _with(affinity: MutableManifest, kind: str, when: str, term: Any) -> MutableManifest:
    """An affinity with one more term."""
    known = affinity.get(kind) or {}
    return {**affinity, kind: {**known, when: [*(known.get(when) or []), term]}}
