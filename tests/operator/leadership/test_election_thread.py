import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.leadership import election_thread
from elastic_pytorch_operator.leadership.election import Elector
from elastic_pytorch_operator.leadership.election_thread import ElectionThread
from elastic_pytorch_operator.leadership.lease import LeaseTiming

from tests.operator.faulty_cluster import add_object

pytestmark = pytest.mark.process
TIMING = LeaseTiming(lease_seconds=2, renew_deadline_seconds=1.5, retry_period_seconds=0.2)


@pytest.fixture
def thread() -> Iterator[ElectionThread]:
    made = ElectionThread()
    yield made
    made.close()


def an_elector(thread: ElectionThread) -> Elector:
    cluster = FakeCluster()
    add_object(cluster, "Lease", "system", "lease")
    return Elector(
        cluster, "system", "lease", "replica", timing=TIMING, may_renew=lambda: thread.may_renew
    )


async def test_lease_is_renewed_while_the_event_loop_is_busy(thread: ElectionThread) -> None:
    elector = an_elector(thread)
    await thread.run(elector.acquire())
    renewing = asyncio.create_task(thread.run(elector.renew()))
    await asyncio.sleep(0)
    time.sleep(2 * TIMING.lease_seconds)  # noqa: ASYNC251  the event loop is to be busy
    assert elector.leading
    renewing.cancel()


async def test_end_of_the_thread_ends_what_still_runs_there() -> None:
    thread, ended = ElectionThread(), threading.Event()

    async def renew() -> None:
        try:
            await asyncio.sleep(60.0)
        finally:
            ended.set()

    renewing = asyncio.create_task(thread.run(renew()))
    await asyncio.sleep(0.1)
    thread.close()
    assert ended.is_set()
    await asyncio.wait({renewing})


async def test_leader_whose_event_loop_hangs_leads_no_more(
    thread: ElectionThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(election_thread, "MAX_HUNG_SECONDS", 0.5)
    elector = an_elector(thread)
    await thread.run(elector.acquire())
    renewing = asyncio.create_task(thread.run(elector.renew()))
    await asyncio.sleep(0)
    until = time.monotonic() + 30
    while elector.leading and time.monotonic() < until:
        time.sleep(0.1)  # noqa: ASYNC251
    assert not elector.leading
    async with asyncio.timeout(30):
        await renewing


async def test_log_says_once_where_the_event_loop_hangs(
    thread: ElectionThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(election_thread, "MAX_HUNG_SECONDS", 0.0)
    found: list[bool] = []
    asking = threading.Thread(target=lambda: found.extend(thread.may_renew for _ in range(2)))
    asking.start()
    asking.join(30)  # the event loop waits here
    assert found == [False, False]
    [told] = [record.getMessage() for record in caplog.records if "has hung" in record.message]
    assert "in test_log_says_once_where_the_event_loop_hangs" in told


async def test_what_runs_in_the_thread_returns_raises_and_is_cancelled(
    thread: ElectionThread,
) -> None:
    async def where() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise ValueError("so")

    assert await thread.run(where()) == "election"
    with pytest.raises(ValueError, match="so"):
        await thread.run(fail())
    cancelled = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    hanging = asyncio.create_task(thread.run(hang()))
    await asyncio.sleep(0.05)
    hanging.cancel()
    async with asyncio.timeout(30):
        while not cancelled.is_set():
            await asyncio.sleep(0.01)
