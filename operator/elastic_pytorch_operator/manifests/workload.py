"""Builds Kueue's Workloads of a job, and places a pod by the one whose quota it uses. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest, append, copied
from elastic_pytorch_operator.api.numbers import parse_count
from elastic_pytorch_operator.manifests.worker_pod import building, owned
from elastic_pytorch_operator.model.actions import CreateWorkload
from elastic_pytorch_operator.model.workload import BASE, Grant
from elastic_pytorch_operator.spec.job import Job

# With its job's priority, or one less, an extra would preempt the minimum of other jobs.
EXTRA_PRIORITY = -1_000_000_000


def workload_name(job: Job, number: int) -> str:
    return f"{job.key.name}-base" if number == BASE else f"{job.key.name}-extra-{number}"


def base_priority(job: Job, classes: Iterable[Manifest]) -> MutableManifest:
    """The priority in a Workload's spec, as Kueue finds it for its own jobs."""
    of_queue = job.queue.priority_class if job.queue is not None else ""
    name = of_queue or job.template["spec"].get("priorityClassName")
    found = next(
        (c for c in classes if (c["metadata"]["name"] == name if name else c.get("globalDefault"))),
        None,
    )
    if found is None:
        return {"priority": 0}
    group, kind = "scheduling.k8s.io", "PriorityClass"
    if of_queue:
        group, kind = kueue.GROUP, "WorkloadPriorityClass"
    reference = {"group": group, "kind": kind, "name": found["metadata"]["name"]}
    return {"priority": int(found["value"]), "priorityClassRef": reference}


@building("Workload")
def workload(
    job: Job, action: CreateWorkload, priority: Manifest, flavor_labels: Mapping[str, str]
) -> MutableManifest:
    """`flavor_labels`: of the base, for an extra that needs the same flavors."""
    assert job.queue is not None
    extra = action.number != BASE
    template = _pod_template(job.template_of(extra=extra), flavor_labels)
    pods: MutableManifest = {"name": kueue.POD_SET, "count": action.count, "template": template}
    annotations = template["metadata"].get("annotations") or {}
    if request := _topology_request(job, annotations, base=not extra):
        pods["topologyRequest"] = request
    metadata = owned(job, workload_name(job, action.number))
    # With the label and without an owner, Kueue takes the Workload for an orphan.
    metadata["labels"] |= {
        kueue.LABEL_JOB_UID: job.uid,
        names.LABEL_WORKLOAD_NUMBER: str(action.number),
    }
    metadata["annotations"] = {
        **job.queue.provisioning,
        names.ANNOTATION_QUOTA_FOR: job.quota_for(extra=extra),
    }
    return {
        "apiVersion": kueue.API_VERSION,
        "kind": kueue.WORKLOAD,
        "metadata": metadata,
        "spec": {"queueName": job.queue.name, "podSets": [pods], **priority},
    }


def _pod_template(of_job: Manifest, flavor_labels: Mapping[str, str]) -> MutableManifest:
    template = copied(dict(of_job))
    spec: MutableManifest = template["spec"]
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        container.setdefault("name", names.TRAINING_CONTAINER)
        _request_limits(container)
    spec["restartPolicy"] = "Never"
    if flavor_labels:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **flavor_labels}
    metadata = template.get("metadata") or {}
    return {
        "metadata": {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)},
        "spec": spec,
    }


def _request_limits(container: MutableManifest) -> None:
    """Writes requests where only limits are: Kueue may forget those after an eviction."""
    resources: dict[str, Any] = container.get("resources") or {}
    if limits := resources.get("limits"):
        container["resources"] = {
            **resources,
            "requests": {**limits, **(resources.get("requests") or {})},
        }


def _topology_request(job: Job, annotations: Mapping[str, str], *, base: bool) -> MutableManifest:
    """The topology of a template's annotations, or of a unit; extras may be placed anywhere."""
    request: MutableManifest = {}
    unit = job.scheduling.unit_topology
    piece = annotations.get(kueue.TOPOLOGY_SLICE) if base else None
    size = parse_count(annotations.get(kueue.TOPOLOGY_SLICE_SIZE))
    if required := annotations.get(kueue.TOPOLOGY_REQUIRED):
        request["required"] = required
    elif preferred := annotations.get(kueue.TOPOLOGY_PREFERRED):
        request["preferred"] = preferred
    elif unconstrained := annotations.get(kueue.TOPOLOGY_UNCONSTRAINED):
        request["unconstrained"] = unconstrained == "true"
    elif unit is not None and unit.required:
        piece, size = unit.key, job.unit_replicas
    if piece and size is not None:
        request |= {"podSetSliceRequiredTopology": piece, "podSetSliceSize": size}
    if request and base:
        request["podIndexLabel"] = names.LABEL_WORKER_INDEX
    return request


DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class PlacementConflict(ValueError):
    """The template of a job and its quota ask for different things."""


def place_pod(pod: MutableManifest, grant: Grant, flavors: Sequence[Manifest]) -> None:
    """Gives a pod what its quota asks for, as Kueue's own jobs do (pkg/podset/podset.go)."""
    metadata, spec, admission = pod["metadata"], pod["spec"], grant.admission
    # Kueue would queue a pod with this label by itself, beside its job.
    metadata["labels"].pop(kueue.LABEL_QUEUE, None)
    queue_labels = {kueue.LABEL_POD_SET: kueue.POD_SET, kueue.LABEL_LOCAL_QUEUE: grant.queue}
    if DNS_LABEL.fullmatch(admission.cluster_queue):
        queue_labels[kueue.LABEL_CLUSTER_QUEUE] = admission.cluster_queue
    _add(metadata, "labels", queue_labels)
    _add(metadata, "annotations", {kueue.ANNOTATION_WORKLOAD: grant.workload})
    if admission.topology:
        if metadata["annotations"].keys().isdisjoint(kueue.TOPOLOGY_REQUESTS):
            _add(metadata, "annotations", {kueue.TOPOLOGY_UNCONSTRAINED: "true"})
        append(spec, "schedulingGates", {"name": kueue.TOPOLOGY_GATE})
    chosen = (flavor.get("spec") or {} for flavor in flavors)
    of_flavors = (
        {"nodeSelector": one.get("nodeLabels"), "tolerations": one.get("tolerations")}
        for one in chosen
    )
    for added in (*of_flavors, *admission.updates):
        for part in ("labels", "annotations"):
            _add(metadata, part, added.get(part) or {})
        _add(spec, "nodeSelector", added.get("nodeSelector") or {}, extra=grant.extra)
        own = spec.get("tolerations") or ()
        append(spec, "tolerations", *(t for t in added.get("tolerations") or () if t not in own))


def _add(
    target: MutableManifest, part: str, fields: Mapping[str, str], *, extra: bool = False
) -> None:
    known: Mapping[str, Any] = target.get(part) or {}
    for key, value in fields.items():
        if known.get(key, value) != value:
            field = "spec.nodeSelector" if part == "nodeSelector" else f"metadata.{part}"
            where = f"spec.template.{field}"
            if extra:
                where += " or spec.scheduling.extraWorkers.nodeSelector"
            raise PlacementConflict(
                f"{where} sets {key} to {known[key]!r}, and Kueue to {value!r}: remove it there"
            )
    if fields:
        target[part] = {**known, **fields}
