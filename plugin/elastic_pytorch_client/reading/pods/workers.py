"""The workers of a large job that its status does not list, by their pods."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.job_view import JobView, Worker

Pod = Mapping[str, Any]
ENDED = {"Succeeded": "Succeeded", "Failed": "Lost"}  # the worker's state, by the pod's phase


def add_pods(job: JobView, pods: Iterable[Pod]) -> JobView:
    if not job.unlisted:
        return job
    listed = {worker.name for worker in job.workers}
    own = [pod for pod in pods if _is_worker(pod, job) and pod["metadata"]["name"] not in listed]
    newest = {_index(pod): pod for pod in sorted(own, key=_age)}
    states = {index: state for state, indexes in job.unlisted.items() for index in indexes}
    found = [
        _worker(pod, states.get(_index(pod), "") if newest[_index(pod)] is pod else "")
        for pod in sorted(own, key=lambda pod: (_index(pod), _age(pod)))
    ]
    return replace(job, workers=(*job.workers, *found), unlisted={})


def _worker(pod: Pod, state: str) -> Worker:
    phase, leaves = str((pod.get("status") or {}).get("phase", "Pending")), _leaves(pod)
    if not state or phase in ENDED or leaves:
        state = ENDED.get(phase) or ("Leaving" if leaves else "Starting")
    name, node = str(pod["metadata"]["name"]), str(pod["spec"].get("nodeName") or "")
    return Worker(name, _index(pod), None, node, state, listed=False)


def _leaves(pod: Pod) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _is_worker(pod: Pod, job: JobView) -> bool:
    labels = pod["metadata"].get("labels") or {}
    owners = pod["metadata"].get("ownerReferences") or ()
    owned = any(owner.get("uid") == job.uid for owner in owners)
    return owned and labels.get(names.LABEL_ROLE) == names.ROLE_WORKER


def _index(pod: Pod) -> int:
    index = str((pod["metadata"].get("labels") or {}).get(names.LABEL_WORKER_INDEX, ""))
    return int(index) if index.isdecimal() else 0


def _age(pod: Pod) -> tuple[str, bool, str]:
    """Sorts the oldest first, and of two that were created at once the ended one."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    created = str(metadata.get("creationTimestamp") or "")
    return created, status.get("phase") not in ENDED, str(metadata["name"])
