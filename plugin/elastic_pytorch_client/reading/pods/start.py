"""How long a pod took to start, and on what it waited."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_client.reading.text import parse_time

SLOW_SCHEDULING_SECONDS = 10.0
SLOW_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PodStart:
    """The start of a pod. Kubernetes tells its times to the second.

    Attributes:
        pod: its name.
        scheduling_seconds: from its creation until it had a node; None: not known.
        start_seconds: from then until its training container ran; None: not known.
    """

    pod: str
    scheduling_seconds: float | None
    start_seconds: float | None

    def advice(self) -> str:
        """What to set if it was slow; empty: it was not."""
        if (self.start_seconds or 0.0) >= SLOW_START_SECONDS:
            return (
                f"Pod {self.pod} took {self.start_seconds:.0f} s to start on its node: it pulled its image, or waited for volumes. "
                "Pull the image onto the nodes beforehand, or make it smaller."
            )
        if (self.scheduling_seconds or 0.0) >= SLOW_SCHEDULING_SECONDS:
            return (
                f"Pod {self.pod} waited {self.scheduling_seconds:.0f} s for a node. "
                "Keep room for a replacement, or scale nodes up beforehand."
            )
        return ""


def view_start(pod: Mapping[str, Any], container: str) -> PodStart:
    """How a pod started.

    Args:
        pod: as the API has it.
        container: the one that trains.
    """
    status = pod.get("status") or {}
    created = parse_time(pod["metadata"].get("creationTimestamp"))
    scheduled = next(
        (parse_time(c.get("lastTransitionTime")) for c in status.get("conditions") or () if c.get("type") == "PodScheduled"),
        None,
    )
    running = [
        ((s.get("state") or {}).get("running") or {}).get("startedAt")
        for s in status.get("containerStatuses") or ()
        if s.get("name") == container
    ]
    started = parse_time(running[0]) if running else None
    return PodStart(
        str(pod["metadata"]["name"]),
        (scheduled - created).total_seconds() if scheduled and created else None,
        (started - scheduled).total_seconds() if started and scheduled else None,
    )
