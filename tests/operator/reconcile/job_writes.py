"""A writer of a job's writes beside an API server that takes a second for each, in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.planning.failed_writes import (
    CLAIMS,
    DRY_RUN,
    JOB,
    POD_GROUP,
    PODS,
    SERVICE,
    STATUS,
    FailedWrite,
)
from elastic_pytorch_operator.reconcile.job_writer import Ended, JobWrite, JobWriter, Lane
from elastic_pytorch_operator.reconcile.write_slots import WriteSlots

from tests.operator.builders import KEY
from tests.operator.virtual_time import run_in_virtual_time

WRITE_SECONDS = 1.0
QUOTA = ClusterError(403, "exceeded quota")
LANES = {
    "template": (Lane.TEMPLATE, ""),
    "service": (Lane.SERVICE, SERVICE),
    "try": (Lane.DRY_RUN, DRY_RUN),
    "claim": (Lane.CLAIMS, CLAIMS),
    "group": (Lane.POD_GROUP, POD_GROUP),
    "status": (Lane.STATUS, STATUS),
    "workload": (Lane.WORKLOADS, ""),
    "pod": (Lane.PODS, PODS),
    "delete": (Lane.DELETES, ""),
    "job": (Lane.JOB, JOB),
    "event": (Lane.EVENTS, ""),
}


class World:
    """A writer, and an API server that takes a second for each write."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.clock = loop.time
        self.slots = WriteSlots(clock=loop.time)
        self.writer = self.another()
        self.ended: list[Ended] = []
        self.errors: dict[str, ClusterError] = {}
        self.sent: list[str] = []
        self.done: list[str] = []

    def another(self) -> JobWriter:
        return JobWriter(KEY, "uid", self.slots, lambda writer, ended: self.ended.append(ended), self.clock)

    def write(self, id_: str, **fields: Any) -> JobWrite:
        lane, key = LANES[id_.partition("-")[0]]

        async def send() -> None:
            self.sent.append(id_)
            await asyncio.sleep(WRITE_SECONDS)
            if id_ in self.errors:
                raise self.errors[id_]
            self.done.append(id_)

        return JobWrite(lane, key or id_, id_, send, **fields)

    def ask(self, *ids: str, failed: dict[str, FailedWrite] | None = None) -> None:
        """A plan asks for these writes."""
        self.writer.ask([self.write(id_) for id_ in ids], self.writer.failed if failed is None else failed)

    def pods(self, count: int) -> list[str]:
        return [f"pod-{index}" for index in range(count)]

    @property
    def failed(self) -> Sequence[str]:
        return sorted(self.writer.failed)


def play(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = World()
        await story(world)
        await world.slots.close()

    run_in_virtual_time(main())
