"""What a pod requests, as the scheduler counts it."""

from typing import Any

import pytest
from elastic_pytorch_operator.spec.pod_requests import pod_requests


def asks(restart: str | None = None, **requests: str) -> dict[str, Any]:
    container: dict[str, Any] = {"resources": {"requests": requests}}
    return container | ({"restartPolicy": restart} if restart else {})


@pytest.mark.parametrize(
    ("situation", "spec", "requests"),
    [
        ("nothing", {"containers": [{"name": "pytorch"}]}, {}),
        ("containers together", {"containers": [asks(cpu="1"), asks(cpu="500m", memory="1Ki")]}, {"cpu": 1.5, "memory": 1024}),
        ("a limit is a request", {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}]}, {"nvidia.com/gpu": 8}),
        (
            "a request is less than the limit",
            {"containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}]},
            {"cpu": 1},
        ),
        ("a large init container", {"initContainers": [asks(cpu="4")], "containers": [asks(cpu="1")]}, {"cpu": 4}),
        ("small init containers", {"initContainers": [asks(cpu="1")] * 3, "containers": [asks(cpu="2")]}, {"cpu": 2}),
        ("a sidecar", {"initContainers": [asks("Always", cpu="1")], "containers": [asks(cpu="2")]}, {"cpu": 3}),
        (
            "an init container beside a sidecar",
            {"initContainers": [asks("Always", cpu="1"), asks(cpu="4")], "containers": [asks(cpu="2")]},
            {"cpu": 5},
        ),
        ("the overhead of a runtime class", {"containers": [asks(cpu="1")], "overhead": {"cpu": "250m"}}, {"cpu": 1.25}),
        (
            "requests of the pod itself",
            {"containers": [asks(cpu="1", memory="1Ki")], "resources": {"requests": {"cpu": "3"}}},
            {"cpu": 3, "memory": 1024},
        ),
    ],
)
def test_requests_of_a_pod(situation: str, spec: dict[str, Any], requests: dict[str, float]) -> None:
    assert pod_requests(spec) == requests, situation
