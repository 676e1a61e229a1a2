"""Two replicas on one cluster in memory, with real sockets: one acts, the other stands by."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import aiohttp
import pytest
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import ENDPOINT_SLICES, JOBS, LEASES, PODS, Resource
from elastic_pytorch_operator.api.times import write_time
from elastic_pytorch_operator.cluster.clocks import TimeOfDay
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.leadership.fence import Fence
from elastic_pytorch_operator.leadership.leader_endpoint import Endpoint
from elastic_pytorch_operator.leadership.lease import LeaseTiming
from elastic_pytorch_operator.runtime.replica import LeadershipLostError, Replica, run_replicas
from elastic_pytorch_operator.runtime.settings import ReplicaSettings
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.builders import a_manifest
from tests.operator.counted_cluster import CountedCluster
from tests.operator.faulty_cluster import add_object
from tests.ports import free_port
from tests.waiting import WAIT_SECONDS

pytestmark = pytest.mark.process

SYSTEM = "system"
SLICE = "elastic-pytorch-operator-ipv4"
# For tests that wait for it.
QUICK = LeaseTiming(lease_seconds=2, renew_deadline_seconds=1.5, retry_period_seconds=0.2)
BEAT = {"incarnation": "a", "state": "ready", "round": 0}


class Line:
    """A replica's connection to the API server; when cut, it neither reads nor writes."""

    def __init__(self, cluster: CountedCluster) -> None:
        self.is_cut = False
        self.cluster = Fence(cluster, lambda: not self.is_cut).cluster
        for verb in ("get", "replace"):
            setattr(self.cluster, verb, partial(self._send, getattr(self.cluster, verb)))

    async def _send(
        self, send: Callable[..., Awaitable[Manifest]], resource: Resource, *arguments: Any
    ) -> Manifest:
        if self.is_cut and resource is LEASES:
            raise ClusterError(0, "cut")
        return await send(resource, *arguments)


@dataclass
class Running:
    """A replica that runs, and what it takes to disturb it."""

    name: str
    made: list[Replica]
    task: asyncio.Task[None]
    stop: asyncio.Event
    settings: ReplicaSettings
    clock_ahead: list[float]
    line: Line

    @property
    def replica(self) -> Replica:
        """The newest of this process."""
        return self.made[-1]

    async def crash(self) -> None:
        """Ends without a word."""
        self.line.is_cut = True
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def get(self, session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
        async with session.get(f"http://127.0.0.1:{self.settings.probe_port}{path}") as answer:
            return answer.status, await answer.text()

    async def beat(self, session: aiohttp.ClientSession, token: str) -> aiohttp.ClientResponse:
        headers = {"Authorization": f"Bearer {token}"}
        async with session.post(
            f"http://127.0.0.1:{self.settings.port}/v1/agent",
            data=json.dumps(BEAT),
            headers=headers,
        ) as answer:
            await answer.read()
            return answer

    async def serves(self, session: aiohttp.ClientSession, token: str) -> bool:
        """Whether it is ready, and takes a heartbeat."""
        with contextlib.suppress(aiohttp.ClientConnectionError):
            return (await self.beat(session, token)).status == 200 and (
                await self.get(session, "/readyz")
            )[0] == 200
        return False


@dataclass
class World:
    cluster: CountedCluster
    session: aiohttp.ClientSession
    replicas: list[Running] = field(default_factory=list)

    async def start(
        self, name: str, *, again: bool = False, timing: LeaseTiming | None = None, **options: Any
    ) -> Running:
        """Starts a process: of one replica, or of as many as it takes until it is stopped."""
        pod = {"metadata": {"namespace": SYSTEM, "name": name}, "spec": {"containers": []}}
        # The container starts again in the pod that is there.
        with contextlib.suppress(ClusterError):
            await self.cluster.create(PODS, pod)
        endpoint = Endpoint(name, f"uid-{name}", "10.0.0.1", 8443, f"node-of-{name}")
        settings = ReplicaSettings(
            *("http://operator", "127.0.0.1", free_port(), free_port(), SYSTEM, name, endpoint),
            timing=timing or LeaseTiming(),
        )
        ahead = [0.0]
        line = Line(self.cluster)
        made: list[Replica] = []

        def begin() -> Replica:
            clock = lambda: time.monotonic() + ahead[0]  # noqa: E731
            made.append(Replica(line.cluster, settings, self._watch, clock=clock, **options))
            return made[-1]

        stop = asyncio.Event()
        task = asyncio.create_task(run_replicas(begin, stop) if again else begin().run(stop))
        running = Running(name, made, task, stop, settings, ahead, line)
        self.replicas.append(running)
        return running

    async def lead(self, name: str, **options: Any) -> Running:
        running = await self.start(name, **options)
        await self.until_leading(running)
        return running

    async def run_job(self) -> str:
        """Has a job get its three pods; returns the token of one."""
        self.cluster.apply_job(a_manifest())
        await self.until(lambda: len(self.cluster.pods()) == 3)
        return self.cluster.issue_token("default", self.cluster.pods()[0]["metadata"]["name"])

    async def _watch(self, cache: Cache, request_work: Callable[[Iterable[JobKey]], None]) -> None:
        def take(kind: str, change: str, found: dict[str, Any]) -> None:
            request_work(cache.observe_change(kind, change, found, time.monotonic()))

        self.cluster.watch(take)
        await asyncio.Event().wait()

    async def until(self, fulfilled: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not fulfilled():
                await asyncio.sleep(0.02)

    async def until_leading(self, running: Running) -> None:
        await self.until(lambda: running.replica.leading)

    async def found_by_agents(self) -> list[str]:
        found = await self.cluster.get(ENDPOINT_SLICES, SYSTEM, SLICE)
        return [there["targetRef"]["name"] for there in found.get("endpoints") or ()]

    def pods_made(self) -> int:
        return self.cluster.calls.count("create Pod") - len(
            {running.name for running in self.replicas}
        )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with aiohttp.ClientSession() as session:
        found = World(CountedCluster(), session)
        for kind, name in (("Lease", names.OPERATOR), ("EndpointSlice", SLICE)):
            add_object(found.cluster, kind, SYSTEM, name)
        yield found
        for running in found.replicas:
            running.task.cancel()
        await asyncio.gather(*(running.task for running in found.replicas), return_exceptions=True)


async def test_one_acts_and_both_are_ready(world: World) -> None:
    first = await world.lead("first")
    second = await world.start("second")
    token = await world.run_job()
    async with asyncio.timeout(20):
        while any(
            [(await running.get(world.session, "/readyz"))[0] != 200 for running in (first, second)]
        ):
            await asyncio.sleep(0.05)
    assert world.pods_made() == 3
    assert await world.found_by_agents() == ["first"]
    assert (await first.beat(world.session, token)).status == 200
    with pytest.raises(aiohttp.ClientConnectionError):
        await second.beat(world.session, token)
    metrics = (await second.get(world.session, "/metrics"))[1]
    assert 'leader_election_master_status{name="elastic-pytorch-operator"} 0.0' in metrics
    assert "elastic_pytorch_operator_ready 1.0" in metrics


async def test_stopped_leader_is_replaced_at_once_and_nothing_is_made_twice(world: World) -> None:
    first = await world.lead("first")
    second = await world.start("second")
    await world.run_job()
    world.cluster.scale_job("lm", 4)
    first.stop.set()
    await first.task
    await world.until_leading(second)
    await world.until(lambda: len(world.cluster.pods()) == 4)
    await asyncio.sleep(0.3)
    assert world.pods_made() == 4
    assert await world.found_by_agents() == ["second"]
    assert world.cluster.calls.count("create Service") <= 2, "the second finds it there"


async def test_stream_ends_with_the_leader(world: World) -> None:
    first = await world.lead("first")
    token = await world.run_job()

    async def lines() -> AsyncIterator[bytes]:
        yield json.dumps(BEAT).encode() + b"\n"
        await asyncio.Event().wait()

    url, headers = (
        f"http://127.0.0.1:{first.settings.port}/v1/agent",
        {"Authorization": f"Bearer {token}"},
    )
    async with world.session.post(url, data=lines(), headers=headers) as stream:
        assert b"heartbeat" in await stream.content.readline()
        first.stop.set()
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(stream.read(), 10)


async def test_crashed_leader_is_replaced_when_its_lease_is_over(world: World) -> None:
    first = await world.lead("first", timing=QUICK)
    second = await world.start("second", timing=QUICK)
    await world.run_job()
    await first.crash()
    await asyncio.sleep(2 * QUICK.look_seconds)
    assert not second.replica.leading
    second.clock_ahead[0] = 3.0
    await world.until_leading(second)
    assert await world.found_by_agents() == ["second"]
    assert world.pods_made() == 3


async def test_leader_knows_the_node_of_the_one_before_that_let_its_lease_run_out(
    world: World,
) -> None:
    first = await world.lead("first", timing=QUICK)
    assert first.replica._controller.lost_leader_node == ""
    second = await world.start("second", timing=QUICK)
    await asyncio.sleep(2 * QUICK.look_seconds)
    await first.crash()
    await world.until_leading(second)
    assert second.replica._controller.lost_leader_node == "node-of-first"
    third = await world.start("third", timing=QUICK)
    await asyncio.sleep(2 * QUICK.look_seconds)
    second.stop.set()
    await world.until_leading(third)
    assert third.replica._controller.lost_leader_node == "", "that one gave its Lease back"


async def test_replica_that_no_agent_can_find_does_not_lead_them_until_it_can(world: World) -> None:
    for _ in range(3):
        world.cluster.fail_next(
            "replace EndpointSlice", 403, "endpoint address 10.0.0.1 is not allowed"
        )
    first = await world.start("first")
    await world.until(lambda: "replace EndpointSlice" in world.cluster.calls)
    assert not first.replica.leading
    assert (
        'leader_election_master_status{name="elastic-pytorch-operator"} 0.0'
        in (await first.get(world.session, "/metrics"))[1]
    )
    await world.until_leading(first)
    assert await world.found_by_agents() == ["first"]


async def test_leader_with_a_wrong_clock_fails_no_job_by_its_deadline(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def server_time() -> datetime:
        return datetime.now(UTC) - timedelta(days=1)  # this machine's clock is a day ahead

    begun = write_time(server_time() - timedelta(minutes=10))
    job = world.cluster.apply_job(a_manifest(activeDeadlineSeconds=6 * 3600))
    status = {"startTime": begun, "round": 1, "worldSize": 3, "conditions": []}
    await world.cluster.patch(
        JOBS, "default", "lm", job["metadata"]["resourceVersion"], {"status": status}, "status"
    )
    await world.lead("first", time_of_day=TimeOfDay(server_time))
    await world.until(lambda: bool(world.cluster.job("lm")["status"]["conditions"]))
    found = world.cluster.job("lm")["status"]
    assert [
        c["type"]
        for c in found["conditions"]
        if c["status"] == "True" and c["type"] in (names.COMPLETE, names.FAILED)
    ] == []
    written = [datetime.fromisoformat(c["lastTransitionTime"]) for c in found["conditions"]]
    assert max(written) < server_time() + timedelta(minutes=1), (
        "statuses have the API server's time, too"
    )
    assert "ahead of the API server's" in caplog.text


async def test_leader_whose_lease_is_taken_writes_nothing_more(world: World) -> None:
    first = await world.lead("first", timing=QUICK)
    second = await world.start("second", timing=QUICK)
    await asyncio.sleep(2 * QUICK.look_seconds)
    # As if the first had been suspended for longer than its lease, and had come back.
    lease = await world.cluster.get(LEASES, SYSTEM, names.OPERATOR)
    await world.cluster.replace(
        LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "second"}}
    )
    await world.until_leading(second)
    with pytest.raises(LeadershipLostError):
        await asyncio.wait_for(first.task, 20)
    await world.run_job()
    assert world.pods_made() == 3


async def test_leader_held_up_for_longer_than_its_lease_does_not_act_even_before_it_knows(
    world: World,
) -> None:
    first = await world.lead("first")
    first.clock_ahead[0] = 10.0
    assert not first.replica.leading
    world.cluster.apply_job(a_manifest())
    await asyncio.gather(first.task, return_exceptions=True)
    assert world.cluster.pods() == []


async def test_replica_that_has_lost_its_lease_begins_again_in_its_process(world: World) -> None:
    first = await world.start("first", again=True, timing=QUICK)
    await world.until(lambda: bool(first.made) and first.replica.leading)
    token = await world.run_job()
    for _ in range(2):
        made = len(first.made)  # on a slow machine it may also have lost its lease by itself
        first.line.is_cut = True
        first.clock_ahead[0] += QUICK.renew_deadline_seconds - 3 * QUICK.retry_period_seconds
        await world.until(lambda made=made: len(first.made) > made)  # type: ignore[misc]
        with pytest.raises(aiohttp.ClientConnectionError):
            await first.beat(world.session, token)
        first.line.is_cut = False
        async with asyncio.timeout(WAIT_SECONDS):
            while not await first.serves(world.session, token):
                await asyncio.sleep(0.05)
    assert world.pods_made() == 3
    first.stop.set()
    await asyncio.wait_for(first.task, 20)


async def test_api_server_away_for_a_while_leaves_one_of_two_leading(world: World) -> None:
    both = [await world.start(name, again=True, timing=QUICK) for name in ("first", "second")]
    await world.until(
        lambda: sum(bool(running.made) and running.replica.leading for running in both) == 1
    )
    [before] = [running for running in both if running.replica.leading]
    # More than one if, on a slow machine, it has lost its lease by itself before.
    made = len(before.made)
    for running in both:
        running.line.is_cut = True
        running.clock_ahead[0] += QUICK.renew_deadline_seconds - 3 * QUICK.retry_period_seconds
    await world.until(lambda: len(before.made) > made)
    assert not any(running.replica.leading for running in both)
    for running in both:
        running.line.is_cut = False
    await world.until(lambda: sum(running.replica.leading for running in both) == 1)
    [leader] = [running for running in both if running.replica.leading]
    assert await world.found_by_agents() == [leader.name]
    assert not any(running.task.done() for running in both)
