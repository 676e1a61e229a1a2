"""The kinds of losses, and the pod of a job that each concerns. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeflow.jobs import INDEX_LABEL, Job


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    title: str
    first: bool = False  # loses worker 0 of a PyTorchJob, or rank 0 of a job of this operator
    force: bool = False
    grows: bool = False  # by a worker, instead of a loss


KINDS = {
    kind.name: kind
    for kind in (
        Kind("worker-force", "a worker is deleted by force", force=True),
        Kind("first-force", "worker 0, or rank 0, is deleted by force", first=True, force=True),
        Kind("worker-delete", "a worker is deleted"),
        Kind("first-delete", "worker 0, or rank 0, is deleted", first=True),
        Kind("grow", "scaled from 2 to 3", grows=True),
    )
}
LOSSES = [name for name, kind in KINDS.items() if not kind.grows]


def victim(kind: Kind, job: Job, pods: Sequence[Mapping[str, Any]], rank_0: str) -> str:
    """The name of the pod to lose; `rank_0` was rank 0 in the last step."""
    alive = [pod["metadata"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    hosts = [
        each["name"] for each in alive if job.kubeflow and each["labels"].get(INDEX_LABEL) == "0"
    ]
    first = hosts if job.kubeflow else [each["name"] for each in alive if each["name"] == rank_0]
    others = sorted(each["name"] for each in alive if each["name"] not in (rank_0, *hosts))
    found = first if kind.first else others
    if not found:
        names = ", ".join(each["name"] for each in alive) or "none"
        raise ValueError(f"no pod to lose among {names}")
    return str(found[0])
