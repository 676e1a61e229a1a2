"""How long a pod took to start."""

from typing import Any

import pytest
from elastic_pytorch_client.reading.pods.start import PodStart, view_start


def pod(scheduled: str = "", started: str = "") -> dict[str, Any]:
    states = [{"name": "side", "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}]
    states += [{"name": "pytorch", "state": {"running": {"startedAt": started}}}] if started else []
    return {
        "metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {
            "conditions": [{"type": "PodScheduled", "lastTransitionTime": scheduled}] if scheduled else [],
            "containerStatuses": states,
        },
    }


@pytest.mark.parametrize(
    ("manifest", "start"),
    [
        (pod(), PodStart("w", None, None)),
        (pod("2026-01-01T00:00:02Z"), PodStart("w", 2.0, None)),
        (pod("2026-01-01T00:00:02Z", "2026-01-01T00:00:47Z"), PodStart("w", 2.0, 45.0)),
    ],
)
def test_start(manifest: dict[str, Any], start: PodStart) -> None:
    assert view_start(manifest, "pytorch") == start


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (PodStart("w", 2.0, 45.0), "Pull the image onto the nodes beforehand"),
        (PodStart("w", 12.0, 3.0), "waited 12 s for a node"),
        (PodStart("w", 1.0, 3.0), ""),
        (PodStart("w", None, None), ""),
    ],
)
def test_advice(start: PodStart, words: str) -> None:
    assert words in start.advice()
    assert bool(words) is bool(start.advice())
