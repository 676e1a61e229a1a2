"""The queue in which a job waits for quota: Kueue's labels and annotations of the job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elastic_pytorch_operator.api import kueue


@dataclass(frozen=True, slots=True)
class Queue:
    """What a job asks of Kueue.

    Attributes:
        name: of the LocalQueue in the job's namespace.
        priority_class: the name of a WorkloadPriorityClass; empty: the priority of the job's pods counts.
        provisioning: annotations for a ProvisioningRequest.
    """

    name: str
    priority_class: str = ""
    provisioning: Mapping[str, str] = field(default_factory=dict)


def read_queue(metadata: Mapping[str, Any]) -> Queue | None:
    """The queue that a job's metadata names; None: it names none."""
    labels = metadata.get("labels") or {}
    name = labels.get(kueue.LABEL_QUEUE)
    if not name:
        return None
    annotations = metadata.get("annotations") or {}
    provisioning = {key: value for key, value in annotations.items() if key.startswith(kueue.PROVISIONING_PREFIX)}
    return Queue(name, labels.get(kueue.LABEL_PRIORITY_CLASS) or "", provisioning)
