"""Quota that Kueue has granted for one pod template serves no other."""

import asyncio
from typing import Any

import pytest
from elastic_pytorch_operator.api import names

from tests.operator.queue_world import QueueWorld


def asking(resource: str, count: str) -> dict[str, Any]:
    container = {
        "name": "pytorch",
        "image": "torch",
        "args": ["train.py"],
        "resources": {"limits": {resource: count}},
    }
    return {"spec": {"containers": [container]}}


def limits(pod: Any) -> list[dict[str, str]]:
    return [
        container["resources"]["limits"]
        for container in pod["spec"]["containers"]
        if container["name"] == "pytorch"
    ]


def asked(world: QueueWorld) -> Any:
    return world.cluster.workload("a-base")["spec"]["podSets"][0]["template"]


@pytest.mark.parametrize("refused", [0, 1, 3])
async def test_job_asks_anew_for_another_template_and_is_suspended_once_its_quota_is_returned(
    world: QueueWorld, refused: int
) -> None:
    world.submit("a", None, 2, template=asking("cpu", "1"))
    await world.until(lambda: world.size("a") == 2)
    for _ in range(refused):
        world.cluster.fail_next("delete Workload", 429, "too many requests")
    world.change("a", suspend=True)
    await world.until(lambda: world.condition("a", names.SUSPENDED)[0] == "True", 600.0)
    assert world.cluster.used == 0, "only now may the template change"
    world.change("a", suspend=False, template=asking("nvidia.com/gpu", "8"))
    await world.until(lambda: world.size("a") == 2 and len(world.pods("a")) == 2)
    granted = limits(asked(world))
    assert (
        [limits(pod) for pod in world.pods("a")]
        == [granted, granted]
        == [[{"nvidia.com/gpu": "8"}]] * 2
    )


async def test_pods_of_another_template_never_run_by_the_quota_of_the_former(
    world: QueueWorld,
) -> None:
    """As an older CRD does not keep the template of a job with quota from changing."""
    world.submit("a", None, 2, template=asking("cpu", "1"))
    await world.until(lambda: world.size("a") == 2)
    world.change("a", template=asking("nvidia.com/gpu", "8"))
    await world.until(lambda: world.condition("a", names.RUNNING)[1] == names.LEAVING_QUEUE)
    await world.until(
        lambda: (
            len(world.pods("a")) == 2 and limits(world.pods("a")[0]) == [{"nvidia.com/gpu": "8"}]
        )
    )
    await asyncio.sleep(30.0)
    assert [limits(pod) for pod in world.pods("a")] == [limits(asked(world))] * 2
