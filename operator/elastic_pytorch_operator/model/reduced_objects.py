"""What is kept of an object before the next one is read: its author chooses how large it is."""

from collections.abc import Callable, Mapping

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job_size import LargeSpec, check_size

METADATA = (
    *("name", "namespace", "uid", "resourceVersion", "generation"),
    *("creationTimestamp", "deletionTimestamp"),
)
LABELS = (
    *(names.LABEL_ROLE, names.LABEL_WORKER_INDEX, names.LABEL_RENDEZVOUS),
    *(names.LABEL_WORKLOAD_NUMBER, kueue.LABEL_QUEUE, kueue.LABEL_PRIORITY_CLASS),
)
# Prefixes.
ANNOTATIONS = (f"{names.GROUP}/", f"{kueue.GROUP}/", kueue.PROVISIONING_PREFIX)


def reduce_pod(pod: Manifest) -> Manifest:
    spec = pod.get("spec") or {}
    reduced = {
        name: spec[name] for name in ("nodeName", "terminationGracePeriodSeconds") if name in spec
    }
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    reduced["initContainers"] = [
        {"name": c.get("name"), "restartPolicy": "Always"} for c in sidecars
    ]
    return {**pod, "metadata": _reduce_metadata(pod["metadata"]), "spec": reduced}


def reduce_workload(workload: Manifest) -> Manifest:
    spec = workload.get("spec") or {}
    reduced = {name: spec[name] for name in ("queueName", "active") if name in spec}
    reduced["podSets"] = [
        {"count": pods["count"]} for pods in (spec.get("podSets") or ())[:1] if "count" in pods
    ]
    return {**workload, "metadata": _reduce_metadata(workload["metadata"]), "spec": reduced}


def reduce_job(job: Manifest) -> Manifest:
    """Its spec becomes a LargeSpec if it is too large."""
    spec = job.get("spec")
    if isinstance(spec, Mapping):
        try:
            check_size(spec, "spec")
        except InvalidJob as problem:
            spec = LargeSpec(spec, problem)
    return {**job, "metadata": _reduce_metadata(job["metadata"]), "spec": spec}


# By the name of the resource in paths.
_REDUCE: Mapping[str, Callable[[Manifest], Manifest]] = {
    names.PLURAL: reduce_job,
    "pods": reduce_pod,
    kueue.WORKLOADS: reduce_workload,
}


def reducer(resource: str) -> Callable[[Manifest], Manifest]:
    """An unreadable object stays as it is, and the cache reports it."""
    reduce = _REDUCE.get(resource)

    def reduced(found: Manifest) -> Manifest:
        try:
            return reduce(found) if reduce is not None else found
        except Exception:
            return found

    return reduced


def _reduce_metadata(metadata: Manifest) -> Manifest:
    reduced = {name: metadata[name] for name in METADATA if name in metadata}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    reduced["labels"] = {name: labels[name] for name in LABELS if name in labels}
    reduced["annotations"] = {
        name: text for name, text in annotations.items() if name.startswith(ANNOTATIONS)
    }
    reduced["ownerReferences"] = [
        owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")
    ]
    return reduced
