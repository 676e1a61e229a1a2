"""Chooses the target of each kind of fault; suspends and resumes a job throughout a run."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from measure.engine import Target

from soak.faults import bucket, control_plane, nodes, workers
from soak.perform import Hit
from soak.plan import KINDS, SUSPEND, Fault
from soak.stage import Stage, insist

Choose = Callable[[Stage, Fault], Awaitable[Target]]
SUSPENDED_SECONDS, RESUMED_SECONDS = 8.0, 25.0

BY_FAMILY: dict[str, Choose] = {
    "size": workers.scale,
    "node": nodes.on_node,
    "control plane": control_plane.on_control_plane,
    "storage": nodes.refuse_writes,
    "image": nodes.remove_image,
}
BY_KIND: dict[str, Choose] = {
    "kill-process": workers.kill_process,
    "kill-container": workers.kill_container,
    "delete-pod": workers.delete_pod,
    "delete-pod-now": workers.delete_pod,
    "kill-job": bucket.kill_job,
    "refuse-requests": bucket.misbehave,
    "cut-connections": bucket.misbehave,
    "pause-server": bucket.pause,
    "kill-leader": control_plane.kill_operators,
    "kill-operators": control_plane.kill_operators,
    "roll-operator": control_plane.roll_operator,
    "rotate-certificate": control_plane.rotate_certificate,
    "stop-dns": control_plane.stop_dns,
}


def how(kind: str) -> Choose:
    return BY_KIND.get(kind) or BY_FAMILY[KINDS[kind].family]


async def choose(stage: Stage, fault: Fault) -> Target:
    return await how(fault.kind)(stage, fault)


async def suspend_and_resume(stage: Stage, job: str, hits: list[Hit]) -> None:
    def patch(*, suspend: bool) -> Awaitable[None]:
        return insist(partial(stage.driver.suspend_job, job, suspend=suspend))

    try:
        while not stage.observer.jobs[job].ended:
            await asyncio.sleep(RESUMED_SECONDS)
            at = time.time()
            await patch(suspend=True)
            await asyncio.sleep(SUSPENDED_SECONDS)
            await patch(suspend=False)
            what = f"{job} is suspended and resumed"
            hits.append(Hit(at, time.time(), SUSPEND, what, frozenset({job})))
    finally:
        await patch(suspend=False)
