"""A writer of a job's writes beside an API server that takes a second for each, in virtual time."""

import asyncio
from collections.abc import Sequence
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
from elastic_pytorch_operator.reconcile.job_writer import Ended, JobWrite, JobWriter, WriteKind
from elastic_pytorch_operator.reconcile.write_slots import WriteSlots

from tests.operator.builders import KEY

WRITE_SECONDS = 1.0
QUOTA = ClusterError(403, "exceeded quota")
KINDS = {
    "template": (WriteKind.TEMPLATE, ""),
    "service": (WriteKind.SERVICE, SERVICE),
    "try": (WriteKind.DRY_RUN, DRY_RUN),
    "claim": (WriteKind.CLAIMS, CLAIMS),
    "group": (WriteKind.POD_GROUP, POD_GROUP),
    "status": (WriteKind.STATUS, STATUS),
    "workload": (WriteKind.WORKLOADS, ""),
    "pod": (WriteKind.PODS, PODS),
    "delete": (WriteKind.DELETES, ""),
    "job": (WriteKind.JOB, JOB),
    "event": (WriteKind.EVENTS, ""),
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
        return JobWriter(
            KEY, "uid", self.slots, lambda writer, ended: self.ended.append(ended), self.clock
        )

    def write(self, id_: str, **fields: Any) -> JobWrite:
        kind, key = KINDS[id_.partition("-")[0]]

        async def send(_count: int = 1) -> None:
            self.sent.append(id_)
            await asyncio.sleep(WRITE_SECONDS)
            if id_ in self.errors:
                raise self.errors[id_]
            self.done.append(id_)

        return JobWrite(kind, key or id_, id_, send, **fields)

    def ask(self, *ids: str, failed: dict[str, FailedWrite] | None = None) -> None:
        """A plan asks for these writes."""
        self.writer.ask(
            [self.write(id_) for id_ in ids], self.writer.failed if failed is None else failed
        )

    def pods(self, count: int) -> list[str]:
        return [f"pod-{index}" for index in range(count)]

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is on its way."""
        return not self.writer.has_write() and self.slots.longest_write_seconds == 0

    @property
    def failed(self) -> Sequence[str]:
        return sorted(self.writer.failed)
