"""Loses nodes one after another while a job trains: the trained share, and each loss's cost."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from elastic_pytorch_local.faults.steps import Step
from measure.engine import Say, made

from kubeflow.jobs import SIZE, Kind
from kubeflow.stage import KubeflowStage

EVENT_SECONDS = 26.0  # between events: the slowest job needs about 20 s to train again
AWAY_SECONDS = 5.0  # until new pods can start on the node


@dataclass(frozen=True, slots=True)
class Share:
    ratio: float  # the time of the kept steps, at the full size, in the whole time
    costs: Sequence[float]  # the rest of the time from each event to the next, in seconds


async def replay(stage: KubeflowStage, events: Sequence[Kind], say: Say) -> Share:
    await stage.prepare(events[0], again=False)
    times = [time.time()]
    for event in events:
        target = await stage.end_node(event)
        say(f"  {target.what}")
        async with made(target, say):
            await asyncio.sleep(AWAY_SECONDS)
        times.append(times[0] + EVENT_SECONDS * len(times))
        await asyncio.sleep(times[-1] - time.time())
    return share(stage.record.steps(), times)


def share(steps: Sequence[Step], times: Sequence[float]) -> Share:
    """Accounts for the time from the first event to the end, which is the last of `times`.

    The steps are those of rank 0, at least one of them before the first event.
    """
    paces = [b.at - a.at for a, b in pairwise(steps) if a.group == b.group and b.world == SIZE]
    kept = [max((step.at, step.number) for step in steps if step.at <= at)[1] for at in times]
    if not paces:
        raise ValueError("no group of the full size took two steps")
    pace = statistics.median(paces)
    costs = [
        end - begin - (b - a) * pace
        for (begin, end), (a, b) in zip(pairwise(times), pairwise(kept), strict=True)
    ]
    return Share(1 - sum(costs) / (times[-1] - times[0]), costs)
