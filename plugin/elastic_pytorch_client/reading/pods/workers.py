"""The workers of a large job that its status does not list, as their pods tell."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.job_view import JobView, Worker

Pod = Mapping[str, Any]
# The state of a worker by the phase of its pod.
ENDED = {"Succeeded": "Succeeded", "Failed": "Lost"}


def add_pods(job: JobView, pods: Iterable[Pod]) -> JobView:
    """A job with the workers that its status does not list.

    What is known only of their indexes is given to their pods.
    """
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
    phase = str((pod.get("status") or {}).get("phase", "Pending"))
    told = ENDED.get(phase) or (
        "Leaving" if pod["metadata"].get("deletionTimestamp") else "Starting"
    )
    state = (
        told if not state or phase in ENDED or pod["metadata"].get("deletionTimestamp") else state
    )
    return Worker(
        str(pod["metadata"]["name"]),
        _index(pod),
        None,
        str(pod["spec"].get("nodeName") or ""),
        state,
        listed=False,
    )


def _is_worker(pod: Pod, job: JobView) -> bool:
    labels = pod["metadata"].get("labels") or {}
    owners = pod["metadata"].get("ownerReferences") or ()
    return labels.get(names.LABEL_ROLE) == names.ROLE_WORKER and any(
        owner.get("uid") == job.uid for owner in owners
    )


def _index(pod: Pod) -> int:
    index = str((pod["metadata"].get("labels") or {}).get(names.LABEL_WORKER_INDEX, ""))
    return int(index) if index.isdecimal() else 0


def _created(pod: Pod) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")


def _age(pod: Pod) -> tuple[str, bool, str]:
    """Sorts the oldest first, and of two that were created at once the ended one."""
    return (
        _created(pod),
        (pod.get("status") or {}).get("phase") not in ENDED,
        str(pod["metadata"]["name"]),
    )
