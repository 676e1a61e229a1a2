"""Where a worker pod is placed: away from nodes and other workers, and beside its unit. Pure."""

from collections.abc import Sequence

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import MutableManifest
from elastic_pytorch_operator.spec.job import Job

# Other preferences of the template may outweigh that units are apart.
WEIGHT, APART_WEIGHT = 100, 50
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def keep_away(spec: MutableManifest, nodes: Sequence[str]) -> None:
    """Terms are alternatives, so each of them excludes the nodes."""
    affinity, unwanted = spec.get("affinity") or {}, _not_among(nodes)
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get(REQUIRED) or {}
    # An empty term matches nothing, and with these fields it would match all other nodes.
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or []), *unwanted]}
        if any(term.values())
        else term
        for term in required.get("nodeSelectorTerms") or ()
    ] or [{"matchFields": unwanted}]
    spec["affinity"] = {
        **affinity,
        "nodeAffinity": {**node_affinity, REQUIRED: {**required, "nodeSelectorTerms": terms}},
    }


def prefer_others(spec: MutableManifest, nodes: Sequence[str]) -> None:
    term = {"weight": WEIGHT, "preference": {"matchFields": _not_among(nodes)}}
    _add(spec, "nodeAffinity", PREFERRED, term)


def prefer_alone(spec: MutableManifest, job: Job) -> None:
    """Prefers nodes without another worker of the job, so that one loss does not take both."""
    term = _weighted(WEIGHT, _near(job, "kubernetes.io/hostname"))
    _add(spec, "podAntiAffinity", PREFERRED, term)


def place_in_unit(pod: MutableManifest, job: Job, index: int) -> None:
    """The scheduler places the first pod of a unit anywhere: its own affinity selects it."""
    unit = str(index // job.unit_replicas)
    pod["metadata"]["labels"][names.LABEL_UNIT] = unit
    topology = job.scheduling.unit_topology
    if topology is None:
        return
    together = _near(job, topology.key, unit=unit)
    apart = _near(job, topology.key)
    apart["labelSelector"]["matchExpressions"] = [
        {"key": names.LABEL_UNIT, "operator": "NotIn", "values": [unit]}
    ]
    when, term = (
        (REQUIRED, together) if topology.required else (PREFERRED, _weighted(WEIGHT, together))
    )
    _add(pod["spec"], "podAffinity", when, term)
    _add(pod["spec"], "podAntiAffinity", PREFERRED, _weighted(APART_WEIGHT, apart))


def _near(job: Job, topology_key: str, *, unit: str = "") -> MutableManifest:
    workers = {names.LABEL_JOB_NAME: job.key.name, names.LABEL_ROLE: names.ROLE_WORKER}
    return {
        "labelSelector": {"matchLabels": {**workers, **({names.LABEL_UNIT: unit} if unit else {})}},
        "topologyKey": topology_key,
    }


def _weighted(weight: int, term: MutableManifest) -> MutableManifest:
    return {"weight": weight, "podAffinityTerm": term}


def _add(spec: MutableManifest, kind: str, when: str, term: MutableManifest) -> None:
    affinity = spec.get("affinity") or {}
    known = affinity.get(kind) or {}
    spec["affinity"] = {**affinity, kind: {**known, when: [*(known.get(when) or []), term]}}


def _not_among(nodes: Sequence[str]) -> list[MutableManifest]:
    return [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
