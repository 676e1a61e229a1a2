"""What a pod has from the Workload by whose quota it runs: Kueue's labels, the nodes of its flavors, and what checks add. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest
from elastic_pytorch_operator.model.workload import Grant

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class PlacementConflict(ValueError):
    """The template of a job and its quota ask for different things."""


def place_pod(pod: MutableManifest, grant: Grant, flavors: Sequence[Manifest]) -> None:
    """Has a pod run by a Workload's quota, as Kueue's own jobs have theirs (pkg/podset/podset.go).

    Args:
        pod: is changed.

    Raises:
        PlacementConflict: the job sets a label, an annotation or a nodeSelector that the quota needs to be another one.
    """
    metadata, spec, admission = pod["metadata"], pod["spec"], grant.admission
    # A pod with this label would be one that Kueue queues by itself, beside its job.
    metadata["labels"].pop(kueue.LABEL_QUEUE, None)
    queue_labels = {kueue.LABEL_POD_SET: kueue.POD_SET, kueue.LABEL_LOCAL_QUEUE: grant.queue}
    if DNS_LABEL.fullmatch(admission.cluster_queue):
        queue_labels[kueue.LABEL_CLUSTER_QUEUE] = admission.cluster_queue
    _add(metadata, "labels", queue_labels)
    _add(metadata, "annotations", {kueue.ANNOTATION_WORKLOAD: grant.workload})
    if admission.topology:
        if metadata["annotations"].keys().isdisjoint(kueue.TOPOLOGY_REQUESTS):
            _add(metadata, "annotations", {kueue.TOPOLOGY_UNCONSTRAINED: "true"})
        spec["schedulingGates"] = [*(spec.get("schedulingGates") or []), {"name": kueue.TOPOLOGY_GATE}]
    chosen = (flavor.get("spec") or {} for flavor in flavors)
    of_flavors = ({"nodeSelector": one.get("nodeLabels"), "tolerations": one.get("tolerations")} for one in chosen)
    for added in (*of_flavors, *admission.updates):
        for part in ("labels", "annotations"):
            _add(metadata, part, added.get(part) or {})
        _add(spec, "nodeSelector", added.get("nodeSelector") or {}, extra=grant.extra)
        _tolerate(spec, added.get("tolerations") or ())


def _add(target: MutableManifest, part: str, fields: Mapping[str, str], *, extra: bool = False) -> None:
    known: Mapping[str, Any] = target.get(part) or {}
    for key, value in fields.items():
        if known.get(key, value) != value:
            where = f"spec.template.{'spec.nodeSelector' if part == 'nodeSelector' else f'metadata.{part}'}"
            if extra:
                where += " or spec.scheduling.extraWorkers.nodeSelector"
            raise PlacementConflict(f"{where} sets {key} to {known[key]!r}, and Kueue to {value!r}: remove it there")
    if fields:
        target[part] = {**known, **fields}


def _tolerate(spec: MutableManifest, tolerations: Sequence[Manifest]) -> None:
    known = spec.get("tolerations") or []
    if added := [toleration for toleration in tolerations if toleration not in known]:
        spec["tolerations"] = [*known, *added]
