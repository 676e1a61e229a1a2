from typing import Any

import pytest
from elastic_pytorch_operator.planning.reporting.goodput import processes_of_a_worker
from elastic_pytorch_operator.spec.resources import (
    count_accelerators,
    is_process_count,
    pod_requests,
    processes_per_node,
    uses_accelerators,
)

from tests.operator.builders import a_job, a_stock_pod, a_worker_pod


def asking(limits: object = None, requests: object = None) -> dict[str, Any]:
    resources = {"limits": limits, "requests": requests}
    return {
        "name": "pytorch",
        "image": "torch",
        "resources": {k: v for k, v in resources.items() if v is not None},
    }


@pytest.mark.parametrize(
    ("container", "count"),
    [
        ({}, 0),
        ({"resources": {"limits": None}}, 0),
        (asking({"cpu": "8", "memory": "32Gi", "ephemeral-storage": "1Gi"}), 0),
        (asking({"nvidia.com/gpu": 8}), 8),
        (asking({"nvidia.com/gpu": "8"}), 8),
        (asking({"nvidia.com/gpu": 0}), 0),
        (asking({"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 8}), 8),
        (asking(None, {"amd.com/gpu": "4"}), 4),
        (asking({"gpu.intel.com/xe": 2, "gpu.intel.com/i915": 1}), 3),
        (asking({"nvidia.com/gpu": 1, "amd.com/gpu": 2}), 3),
        (asking({"gpu.intel.com/i915_monitoring": 1, "gpu.intel.com/xe_monitoring": 1}), 0),
        (
            asking(
                {
                    "gpu.intel.com/millicores": 500,
                    "gpu.intel.com/memory.max": "8Gi",
                    "gpu.intel.com/tiles": 2,
                }
            ),
            0,
        ),
        (
            asking(
                {
                    "rdma/hca_shared_devices_a": 8,
                    "vpc.amazonaws.com/efa": 4,
                    "nvidia.com/hostdev": 8,
                }
            ),
            0,
        ),
        (asking({"nvidia.com/mig-1g.5gb": 4}), 0),
        (asking({"nvidia.com/gpu.shared": 4}), 0),
        (asking({"nvidia.com/gpu": "1.5"}), 0),
        (asking({"nvidia.com/gpu": "many"}), 0),
        (asking({"nvidia.com/gpu": -1}), 0),
        (asking({"nvidia.com/gpu": None}), 0),
    ],
)
def test_devices_that_a_container_asks_for(container: dict[str, Any], count: int) -> None:
    assert count_accelerators(container) == count
    assert processes_per_node(None, container) == str(max(1, count))


@pytest.mark.parametrize(
    ("container", "used"),
    [
        ({}, False),
        (asking({"cpu": 8}), False),
        (asking({"nvidia.com/gpu": 0}), False),
        (asking({"nvidia.com/gpu": 1}), True),
        (asking({"nvidia.com/mig-3g.20gb": 1}), True),
        (asking({"nvidia.com/gpu.shared": "1"}), True),
        (asking({"nvidia.com/hostdev": 1}), False),
        (asking({"gpu.intel.com/xe_monitoring": 1}), False),
    ],
)
def test_container_uses_a_device_or_a_part_of_one(container: dict[str, Any], used: bool) -> None:
    assert uses_accelerators(container) is used


@pytest.mark.parametrize(
    ("value", "processes"),
    [
        (1, "1"),
        ("8", "8"),
        ("auto", "auto"),
        ("gpu", "gpu"),
        ("xpu", "xpu"),
    ],
)
def test_a_value_wins_over_what_the_container_asks_for(value: int | str, processes: str) -> None:
    assert is_process_count(value)
    assert processes_per_node(value, asking({"nvidia.com/gpu": 2})) == processes


@pytest.mark.parametrize(
    ("value", "container", "processes"),
    [
        ("cpu", asking({"cpu": "4"}), "4"),
        ("cpu", asking({"cpu": "500m"}), "1"),
        ("cpu", asking({"cpu": "5k"}), "1024"),
        ("cpu", asking({"cpu": "4", "nvidia.com/gpu": 2}), "4"),
        ("cpu", asking(None, {"cpu": "4"}), "cpu"),
        ("cpu", asking({"cpu": "much"}), "cpu"),
        ("cpu", {"resources": {"limits": None}}, "cpu"),
        ("auto", asking({"cpu": "4"}), "4"),
        ("auto", asking({"cpu": "4", "nvidia.com/gpu": 2}), "auto"),
        ("auto", asking({"cpu": "4", "nvidia.com/mig-3g.20gb": 1}), "auto"),
        ("auto", {}, "auto"),
    ],
)
def test_cores_of_the_containers_limit_count_and_not_the_nodes(
    value: str, container: dict[str, Any], processes: str
) -> None:
    assert processes_per_node(value, container) == processes


@pytest.mark.parametrize("value", [0, "08", 1025, -1, "1.5", "", " 2", "GPU", "\u0662"])
def test_a_value_that_is_no_number_of_processes(value: int | str) -> None:
    assert not is_process_count(value)


@pytest.mark.parametrize("backend", ["operator", "c10d"])
@pytest.mark.parametrize(
    ("spec", "processes"), [({}, "8"), ({"nprocPerNode": 1}, "1"), ({"nprocPerNode": "gpu"}, "gpu")]
)
def test_pods_run_a_process_for_each_accelerator_of_the_training_container(
    backend: str, spec: dict[str, Any], processes: str
) -> None:
    sidecar = {**asking({"nvidia.com/gpu": 1}), "name": "exporter"}
    init = {**asking({"nvidia.com/gpu": 1}), "name": "warm-up"}
    template = {
        "spec": {"containers": [sidecar, asking({"nvidia.com/gpu": 8})], "initContainers": [init]}
    }
    job = a_job(template=template, rendezvous={"backend": backend}, **spec)
    pod = a_stock_pod(job) if job.stock else a_worker_pod(job, 0)
    [value] = [
        v["value"] for v in pod["spec"]["containers"][1]["env"] if v["name"] == "PET_NPROC_PER_NODE"
    ]
    assert value == processes


def test_they_are_known_before_an_agent_has_spoken() -> None:
    job = a_job(template={"spec": {"containers": [asking({"nvidia.com/gpu": 8})]}})
    assert processes_of_a_worker((), job) == 8


def asks(restart: str | None = None, **requests: str) -> dict[str, Any]:
    container: dict[str, Any] = {"resources": {"requests": requests}}
    return container | ({"restartPolicy": restart} if restart else {})


@pytest.mark.parametrize(
    ("situation", "spec", "requests"),
    [
        ("nothing", {"containers": [{"name": "pytorch"}]}, {}),
        (
            "containers together",
            {"containers": [asks(cpu="1"), asks(cpu="500m", memory="1Ki")]},
            {"cpu": 1.5, "memory": 1024},
        ),
        (
            "a limit is a request",
            {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}]},
            {"nvidia.com/gpu": 8},
        ),
        (
            "a request is less than the limit",
            {"containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}]},
            {"cpu": 1},
        ),
        (
            "a large init container",
            {"initContainers": [asks(cpu="4")], "containers": [asks(cpu="1")]},
            {"cpu": 4},
        ),
        (
            "small init containers",
            {"initContainers": [asks(cpu="1")] * 3, "containers": [asks(cpu="2")]},
            {"cpu": 2},
        ),
        (
            "a sidecar",
            {"initContainers": [asks("Always", cpu="1")], "containers": [asks(cpu="2")]},
            {"cpu": 3},
        ),
        (
            "an init container beside a sidecar",
            {
                "initContainers": [asks("Always", cpu="1"), asks(cpu="4")],
                "containers": [asks(cpu="2")],
            },
            {"cpu": 5},
        ),
        (
            "the overhead of a runtime class",
            {"containers": [asks(cpu="1")], "overhead": {"cpu": "250m"}},
            {"cpu": 1.25},
        ),
        (
            "requests of the pod itself",
            {"containers": [asks(cpu="1", memory="1Ki")], "resources": {"requests": {"cpu": "3"}}},
            {"cpu": 3, "memory": 1024},
        ),
    ],
)
def test_requests_of_a_pod(
    situation: str, spec: dict[str, Any], requests: dict[str, float]
) -> None:
    assert pod_requests(spec) == requests, situation
