"""Whatever API server, network and machines do, two replicas never lead at once.

Real electors on one Lease in memory, in virtual time: requests are slow, fail, hang, or are carried
out though their answers are lost; replicas are paused, crash and start again, or stop; their clocks
have nothing to do with each other and run at different speeds.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import Resource
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.leadership.election import Elector
from elastic_pytorch_operator.leadership.lease import LeaseTiming

from tests.hypothesis_examples import seeds
from tests.operator.faulty_cluster import add_object
from tests.operator.virtual_time import run_in_virtual_time

UNSTEADY_SECONDS = 200.0
QUIET_SECONDS = 80.0
LOOK_SECONDS = 0.05
MAX_CLOCK_ERROR = 0.05  # of a clock's speed


class UnsteadyLine(FakeCluster):
    """A replica's way to the API server."""

    def __init__(self, cluster: FakeCluster, chance: random.Random) -> None:
        super().__init__(nodes=0)
        self.quiet = False
        self._cluster = cluster
        self._chance = chance
        self._sent: set[asyncio.Task[Manifest]] = set()

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        return await self._carry(lambda: self._cluster.get(resource, namespace, name))

    async def replace(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        return await self._carry(
            lambda: self._cluster.replace(resource, manifest, strict=strict, dry_run=dry_run)
        )

    async def _carry(self, request: Callable[[], Awaitable[Manifest]]) -> Manifest:
        """Sends a request.

        What was sent is carried out, whether or not its sender is there to hear of it.
        """
        await self._pause()
        fate = 1.0 if self.quiet else self._chance.random()
        if fate < 0.05:
            raise ClusterError(0, "refused")

        async def carried_out() -> Manifest:
            await asyncio.sleep(self._delay(fate))
            return await request()

        sent = asyncio.create_task(carried_out())
        self._sent.add(sent)
        sent.add_done_callback(self._sent.discard)
        answer = await asyncio.shield(sent)
        await asyncio.sleep(self._delay(fate))
        await self._pause()
        if fate > 0.95 and not self.quiet:
            raise ClusterError(0, "the answer was lost")
        return answer

    def _delay(self, fate: float) -> float:
        if fate < 0.15:
            return self._chance.uniform(0.5, 6.0)
        return self._chance.uniform(0.001, 0.2)

    async def _pause(self) -> None:
        """Nothing of the process runs for a while, its timers neither."""
        if self.quiet or self._chance.random() > 0.02:
            return
        paused = asyncio.ensure_future(asyncio.sleep(self._chance.uniform(1.0, 10.0)))
        while not paused.done():
            try:
                await asyncio.shield(paused)
            except asyncio.CancelledError:
                if self.quiet:
                    raise


@dataclass
class Replica:
    """Takes part in the election, again and again, under one name."""

    name: str
    line: UnsteadyLine
    chance: random.Random
    timing: LeaseTiming
    elector: Elector = field(init=False)
    terms: int = 0

    async def run(self) -> None:
        offset = self.chance.uniform(0, 1e6)
        speed = 1 + self.chance.uniform(-MAX_CLOCK_ERROR, MAX_CLOCK_ERROR)
        loop = asyncio.get_running_loop()
        while True:
            self.elector = Elector(
                self.line,
                "system",
                "lease",
                self.name,
                lambda: offset + speed * loop.time(),
                timing=self.timing,
            )
            await self.elector.acquire()
            self.terms += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(1e9 if self.line.quiet else self.chance.uniform(0, 40)):
                    await self.elector.renew()
            if self.chance.random() < 0.3:
                await self.elector.give_back()
            elif self.elector.leading:  # it crashes, and its container needs a while
                self.elector = Elector(self.line, "system", "lease", self.name)
                await asyncio.sleep(self.chance.uniform(0.1, 3.0))


@pytest.mark.parametrize("timing", [LeaseTiming(), LeaseTiming(15, 10.0, 2.0)], ids=str)
@seeds(30)
def test_two_never_lead_at_once(seed: int, timing: LeaseTiming) -> None:
    async def election() -> None:
        chance, cluster = random.Random(seed), FakeCluster(nodes=0)
        add_object(cluster, "Lease", "system", "lease")
        replicas = [
            Replica(f"replica-{n}", UnsteadyLine(cluster, chance), chance, timing) for n in range(3)
        ]
        running = [asyncio.create_task(replica.run()) for replica in replicas]
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        # A process that pauses hears of an error too late. Formatting it within a collection of
        # garbage would break a parser at work: https://github.com/python/cpython/issues/106905
        loop.set_exception_handler(lambda _loop, _context: None)

        def leaders() -> list[str]:
            return [replica.name for replica in replicas if replica.elector.leading]

        try:
            while loop.time() < UNSTEADY_SECONDS:
                assert len(leaders()) <= 1, f"after {loop.time():.2f} s"
                await asyncio.sleep(LOOK_SECONDS)
            assert sum(replica.terms for replica in replicas) > 1, "they take turns"
        finally:
            for replica in replicas:
                replica.line.quiet = True
        await asyncio.sleep(QUIET_SECONDS)
        assert len(leaders()) == 1
        assert not [task for task in running if task.done()]
        for task in running:
            task.cancel()

    random.seed(seed)  # for the electors' own looks
    run_in_virtual_time(election())
