"""The queue in which a job waits for quota: Kueue's labels and annotations of the job."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elastic_pytorch_operator.api import kueue

# What Kueue grants quota for: requests, and what chooses the nodes and the priority of a pod.
GRANTED_FOR = (
    *("nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName"),
    *("overhead", "resources"),
)


@dataclass(frozen=True, slots=True)
class Queue:
    name: str  # of the LocalQueue in the job's namespace
    priority_class: str = ""  # a WorkloadPriorityClass; empty: the priority of the pods counts
    # Annotations for a ProvisioningRequest.
    provisioning: Mapping[str, str] = field(default_factory=dict)
    template: str = ""  # a hash of the parts of the pod template that quota is granted for


def read_queue(
    metadata: Mapping[str, Any], template: Mapping[str, Any] | None = None
) -> Queue | None:
    """The queue in a job's metadata, if any; without a template if that cannot be read."""
    labels = metadata.get("labels") or {}
    name = labels.get(kueue.LABEL_QUEUE)
    if not name:
        return None
    annotations = metadata.get("annotations") or {}
    provisioning = {
        key: value
        for key, value in annotations.items()
        if key.startswith(kueue.PROVISIONING_PREFIX)
    }
    granted_for = "" if template is None else hash_template(template)
    return Queue(name, labels.get(kueue.LABEL_PRIORITY_CLASS) or "", provisioning, granted_for)


def hash_template(template: Mapping[str, Any]) -> str:
    """Returns 16 hex digits for a checked template."""
    spec, annotations = template["spec"], (template.get("metadata") or {}).get("annotations") or {}
    parts = {
        **{name: spec.get(name) for name in GRANTED_FOR},
        "containers": [c.get("resources") for c in spec.get("containers") or ()],
        "initContainers": [
            (c.get("resources"), c.get("restartPolicy")) for c in spec.get("initContainers") or ()
        ],
        "topology": {
            name: value
            for name, value in annotations.items()
            if name.startswith(f"{kueue.GROUP}/podset-")
        },
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
