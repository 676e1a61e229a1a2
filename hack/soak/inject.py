"""Makes the faults of a plan, each with its undo, and records what was done."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import aiohttp
from measure.api import ApiError, jobs_path
from measure.commands import CommandFailed

from soak.faults import bucket, control_plane, nodes, workers
from soak.plan import KINDS, Act, Fault
from soak.stage import NoTarget, Stage, Target
from soak.timeline import SUSPEND, Hit

Choose = Callable[[Stage, Fault], Awaitable[Target]]
TROUBLE = (NoTarget, ApiError, CommandFailed, aiohttp.ClientError, TimeoutError, OSError)
MAKE_SECONDS = 120.0
UNDO_SECONDS = 600.0
UNDO_PAUSE_SECONDS = 3.0
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
    """What chooses the target of a kind of fault."""
    return BY_KIND.get(kind) or BY_FAMILY[KINDS[kind].family]


async def perform(stage: Stage, act: Act, hits: list[Hit], say: Callable[[str], None]) -> None:
    """Makes the faults of an act at once, after its pause; returns when all are undone.

    Raises:
        TimeoutError: one could not be undone. The cluster is not as it was.
    """
    await asyncio.sleep(act.pause_seconds)
    await asyncio.gather(*(_make(stage, fault, hits, say) for fault in act.faults))


async def _make(stage: Stage, fault: Fault, hits: list[Hit], say: Callable[[str], None]) -> None:
    at, missed = time.time(), ""
    try:
        target = await asyncio.wait_for(how(fault.kind)(stage, fault), MAKE_SECONDS)
    except TROUBLE as error:
        say(f"{fault.kind} not made: {error}")
        return
    say(f"{target.what}{f' for {fault.seconds:.0f} s' if fault.seconds else ''}")
    try:
        try:
            await asyncio.wait_for(target.do(), MAKE_SECONDS)
        except TROUBLE as error:
            missed = f" (perhaps not: {type(error).__name__} {error})"
        await asyncio.sleep(fault.seconds)
    finally:
        if target.undo:
            await _undo(target, say)
    jobs = target.jobs | stage.jobs_on(target.node) if target.node and target.jobs else target.jobs
    hits.append(Hit(at, time.time(), fault.kind, target.what + missed, jobs, target.pods, target.node))


async def _undo(target: Target, say: Callable[[str], None]) -> None:
    """Undoes a fault; again and again, as another fault may be in its way."""
    assert target.undo is not None
    async with asyncio.timeout(UNDO_SECONDS):
        while True:
            try:
                await target.undo()
                return
            except TROUBLE as error:
                say(f"not undone yet: {target.what}: {type(error).__name__} {error}")
            await asyncio.sleep(UNDO_PAUSE_SECONDS)


async def suspend_and_resume(stage: Stage, job: str, hits: list[Hit]) -> None:
    """Suspends and resumes a job until it has ended, or this is cancelled; it is resumed in the end."""

    async def patch(suspend: bool) -> None:
        while True:
            try:
                await stage.api.ask("PATCH", jobs_path(stage.namespace, job), {"spec": {"suspend": suspend}})
                return
            except TROUBLE:
                await asyncio.sleep(1)

    try:
        while not stage.observer.jobs[job].ended:
            await asyncio.sleep(RESUMED_SECONDS)
            at = time.time()
            await patch(True)
            await asyncio.sleep(SUSPENDED_SECONDS)
            await patch(False)
            hits.append(Hit(at, time.time(), SUSPEND, f"{job} is suspended and resumed", frozenset({job})))
    finally:
        await patch(False)
