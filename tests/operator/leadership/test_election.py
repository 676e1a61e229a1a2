"""Electors that want one Lease, on a cluster that fails or loses answers."""

import asyncio
import time
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import LEASES, Resource
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.leadership.election import Elector
from elastic_pytorch_operator.leadership.lease import LeaseTiming

from tests.operator.counted_cluster import CountedCluster
from tests.operator.faulty_cluster import add_object


@dataclass
class Clock:
    """A replica's monotonic clock, which a test may have go ahead."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class LeaseCluster(CountedCluster):
    """A cluster with the Lease as the chart renders it."""

    def __init__(self) -> None:
        super().__init__()
        add_object(self, "Lease", "system", "lease")


class ForgetfulCluster(LeaseCluster):
    """Does what it is asked, but the answers to the first writes of a Lease are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 1

    async def replace(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        written = await super().replace(resource, manifest, strict=strict, dry_run=dry_run)
        if self.lost:
            self.lost -= 1
            raise ClusterError(0, "no answer")
        return written


class SlowCluster(LeaseCluster):
    """Answers late, and some requests never, as a connection whose other end is dead."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.unanswered = 0

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        await self._wait()
        return await super().get(resource, namespace, name)

    async def replace(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        await self._wait()
        return await super().replace(resource, manifest, strict=strict, dry_run=dry_run)

    async def _wait(self) -> None:
        if self.unanswered:
            self.unanswered -= 1
            await asyncio.sleep(3600)
        await asyncio.sleep(self.seconds)


def an_elector(cluster: CountedCluster, identity: str, clock: Clock | None = None) -> Elector:
    return Elector(
        cluster,
        "system",
        "lease",
        identity,
        clock or Clock(),
        LeaseTiming(retry_period_seconds=0.2),
    )


async def acquired(elector: Elector) -> None:
    async with asyncio.timeout(20):
        await elector.acquire()


class Contest(NamedTuple):
    """One elector leads, and another one waits for the lease, by a clock of its own."""

    cluster: LeaseCluster
    clock: Clock
    first: Elector
    second: Elector
    waiting: asyncio.Task[None]


async def a_contest() -> Contest:
    cluster, clock = LeaseCluster(), Clock()
    first, second = an_elector(cluster, "first"), an_elector(cluster, "second", clock)
    await acquired(first)
    waiting = asyncio.create_task(acquired(second))
    while not second.holder:
        await asyncio.sleep(0.01)
    return Contest(cluster, clock, first, second, waiting)


async def test_a_lease_given_back_is_taken_at_once_and_no_worker_is_lost() -> None:
    _, _, first, second, waiting = await a_contest()
    await first.give_back()
    assert not first.leading
    await waiting
    assert second.leading
    await first.give_back()
    assert second.leading, "who leads no more has nothing to give"
    assert second.lost_leader == ""


async def test_a_leader_without_a_word_is_waited_for_and_then_known_as_lost() -> None:
    _, clock, first, second, waiting = await a_contest()
    await asyncio.sleep(0.1)
    assert not waiting.done()
    clock.ahead = 5
    await waiting
    assert second.leading
    assert (first.lost_leader, second.lost_leader) == ("", "first")


async def test_a_leader_that_could_not_renew_is_not_called_lost() -> None:
    cluster, clock, _, second, waiting = await a_contest()
    cluster.fail_next("get Lease", 0)
    looks = cluster.calls.count("get Lease")
    async with asyncio.timeout(20):
        while cluster.calls.count("get Lease") == looks:
            await asyncio.sleep(0.01)
    clock.ahead = 5
    await waiting
    assert second.lost_leader == ""


async def test_hold_ends_when_another_has_taken_the_lease() -> None:
    cluster = LeaseCluster()
    elector = an_elector(cluster, "first")
    await acquired(elector)
    holding = asyncio.create_task(elector.renew())
    lease = await cluster.get(LEASES, "system", "lease")
    await cluster.replace(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "second"}})
    async with asyncio.timeout(20):
        await holding
    assert not elector.leading
    assert elector.holder == "second"


async def test_leader_that_cannot_renew_stops() -> None:
    cluster, clock = LeaseCluster(), Clock()
    elector = an_elector(cluster, "first", clock)
    await acquired(elector)
    for _ in range(100):
        cluster.fail_next("get Lease", 0)
    clock.ahead = 10
    assert not elector.leading, "at once, though nothing has told it"
    async with asyncio.timeout(20):
        await elector.renew()


@pytest.mark.usefixtures("virtual_time")
async def test_api_server_that_answers_before_the_deadline_has_a_leader() -> None:
    elector = Elector(SlowCluster(1.4), "system", "lease", "first", asyncio.get_running_loop().time)
    await acquired(elector)
    renewing = asyncio.create_task(elector.renew())
    await asyncio.sleep(60)
    assert elector.leading and not renewing.done()
    renewing.cancel()


@pytest.mark.usefixtures("virtual_time")
async def test_request_on_a_dead_connection_is_not_waited_for() -> None:
    cluster = SlowCluster(0.1)
    elector = Elector(cluster, "system", "lease", "first", asyncio.get_running_loop().time)
    await acquired(elector)
    renewing = asyncio.create_task(elector.renew())
    for _ in range(10):
        cluster.unanswered = 1
        await asyncio.sleep(3)
        assert elector.leading and not renewing.done()
    renewing.cancel()


async def test_a_renewal_is_one_write() -> None:
    cluster = LeaseCluster()
    elector = Elector(cluster, "system", "lease", "first", timing=LeaseTiming(4, 3.0, 0.05))
    await acquired(elector)
    before = len(cluster.calls)
    holding = asyncio.create_task(elector.renew())
    async with asyncio.timeout(20):
        while len(cluster.calls) < before + 5:
            await asyncio.sleep(0.01)
    assert set(cluster.calls[before:]) == {"replace Lease"}
    holding.cancel()


async def test_answer_that_is_lost_is_found_out() -> None:
    cluster = ForgetfulCluster()
    elector = an_elector(cluster, "first")
    await acquired(elector)
    assert elector.leading
    assert cluster.calls.count("replace Lease") == 2


async def test_lease_that_is_missing_is_waited_for_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = CountedCluster()
    elector = an_elector(cluster, "first")
    waiting = asyncio.create_task(acquired(elector))
    while "cannot claim the lease" not in caplog.text:
        await asyncio.sleep(0.01)
    assert 'Lease "lease" not found' in caplog.text
    add_object(cluster, "Lease", "system", "lease")
    await waiting
    assert "replace Lease" in cluster.calls


async def test_what_others_have_written_into_the_lease_stays() -> None:
    cluster = LeaseCluster()
    owned = {"annotations": {"meta.helm.sh/release-name": "release"}, "labels": {"team": "ml"}}
    lease = await cluster.get(LEASES, "system", "lease")
    await cluster.replace(LEASES, {**lease, "metadata": {**lease["metadata"], **owned}})
    elector = an_elector(cluster, "first")
    await acquired(elector)
    await elector.give_back()
    lease = await cluster.get(LEASES, "system", "lease")
    assert {field: lease["metadata"][field] for field in owned} == owned
    assert lease["spec"]["holderIdentity"] == ""
