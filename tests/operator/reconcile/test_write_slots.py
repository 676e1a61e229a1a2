import asyncio
from collections import Counter, deque
from collections.abc import Coroutine
from typing import Any

import pytest
from elastic_pytorch_operator.cluster.interface import MAX_RETRY_AFTER_SECONDS, ClusterError
from elastic_pytorch_operator.reconcile.write_slots import (
    LEAST_MAX_WRITES,
    MAX_WRITES,
    MOST_MAX_WRITES,
    OVERLOADED_SECONDS,
    WriteSlots,
)

from tests.operator.counted_lines import count_lines

WRITE_SECONDS = 1.0
DENIED_BY_429 = 'admission webhook "w.example.com" denied the request: not so fast'


class Api:
    """Takes writes that last a second, or never end; remembers when each was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, str]] = []
        self.on_their_way: Counter[str] = Counter()
        # At each write: how many were on their way, of all and of its namespace.
        self.before: list[tuple[int, int]] = []
        self.errors: deque[ClusterError | None] = deque()

    async def take(self, job: "Job") -> ClusterError | None:
        self.sent.append((round(asyncio.get_running_loop().time(), 1), job.name))
        self.before.append((self.on_their_way.total(), self.on_their_way[job.namespace]))
        self.on_their_way[job.namespace] += 1
        await asyncio.sleep(WRITE_SECONDS if not job.hangs else 1e9)
        self.on_their_way[job.namespace] -= 1
        return self.errors.popleft() if self.errors else None

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.sent]


class Job:
    def __init__(
        self, api: Api, name: str, writes: int, namespace: str = "team", *, hangs: bool = False
    ) -> None:
        self.api = api
        self.name = name
        self.left = writes
        self.namespace = namespace
        self.hangs = hangs

    def has_write(self) -> bool:
        return self.left > 0

    def next_write(self) -> Coroutine[Any, Any, ClusterError | None]:
        self.left -= 1
        return self.api.take(self)


def begin(max_writes: int = MAX_WRITES) -> tuple[WriteSlots, Api]:
    return WriteSlots(asyncio.get_running_loop().time, max_writes=max_writes), Api()


@pytest.mark.parametrize("max_writes", [LEAST_MAX_WRITES, 11, MAX_WRITES, MOST_MAX_WRITES])
@pytest.mark.parametrize("namespaces", [1, 2, 3, 24, 200])
async def test_half_of_the_slots_are_for_namespaces_without_a_write_on_its_way(
    namespaces: int, max_writes: int
) -> None:
    slots, api = begin(max_writes)
    for number in range(2 * MOST_MAX_WRITES):
        slots.offer(Job(api, f"job-{number}", 4, f"team-{number % namespaces}"))
    await asyncio.sleep(1.5)
    assert api.on_their_way.total() >= max_writes // 2, "none is left free without need"
    await asyncio.sleep(1200)
    assert Counter(api.names) == {f"job-{number}": 4 for number in range(2 * MOST_MAX_WRITES)}
    assert max(before for before, _ in api.before) < max_writes
    assert (
        max(before for before, in_namespace in api.before if in_namespace or namespaces == 1)
        < max_writes / 2
    )


@pytest.mark.parametrize("jobs", [1, 60])
@pytest.mark.parametrize("hanging", [1, 2, 3, 5, 10, 24, 48])
async def test_another_namespace_finds_a_slot_at_once_beside_those_that_hang(
    hanging: int, jobs: int
) -> None:
    slots, api = begin()
    for number in range(hanging * jobs):
        slots.offer(Job(api, f"hangs-{number}", 1, f"team-{number % hanging}", hangs=True))
    for _ in range(3):
        slots.offer(Job(api, "sound", 1, "other"))
        await asyncio.sleep(WRITE_SECONDS + 0.1)
    assert [moment for moment, name in api.sent if name == "sound"] == [0.0, 1.1, 2.2]


async def test_many_namespaces_that_hang_one_after_the_other_leave_a_slot_to_the_next() -> None:
    slots, api = begin()
    for number in range(60 * MAX_WRITES // 2):
        slots.offer(Job(api, f"hangs-{number}", 1, f"team-{number // 60}", hangs=True))
    slots.offer(Job(api, "sound", 1, "other"))
    await asyncio.sleep(1)
    assert [api.on_their_way[f"team-{number}"] for number in range(25)] == [25, *[1] * 24]
    assert "sound" in api.names


async def test_age_of_the_oldest_write_is_known() -> None:
    slots, api = begin()
    slots.offer(Job(api, "a", 1))
    await asyncio.sleep(0.4)
    slots.offer(Job(api, "b", 1))
    await asyncio.sleep(0.2)
    assert slots.longest_write_seconds == pytest.approx(0.6, abs=0.01)
    await asyncio.sleep(2)
    assert slots.longest_write_seconds == 0


async def test_job_with_thousands_of_writes_delays_another_by_one() -> None:
    slots, api = begin()
    slots.offer(Job(api, "large", 4000))
    slots.offer(Job(api, "small", 2))
    await asyncio.sleep(1.5)
    assert api.names[MAX_WRITES // 2 :][:4].count("small") == 2


async def test_sender_that_no_longer_has_anything_loses_its_turn() -> None:
    slots, api = begin()
    slots.offer(Job(api, "first", MAX_WRITES))
    job = Job(api, "scaled down", 10)
    slots.offer(job)
    job.left = 0
    slots.offer(job)
    await asyncio.sleep(1.5)
    assert "scaled down" not in api.names


@pytest.mark.parametrize(
    ("error", "pause_seconds"),
    [
        (None, 0.0),
        (ClusterError(409, "the object has been modified"), 0.0),
        (ClusterError(0, "no answer from the API server: TimeoutError"), 0.0),
        (ClusterError(429, "too many requests"), OVERLOADED_SECONDS),
        (ClusterError(429, "too many requests", retry_after_seconds=7.0), 7.0),
        (ClusterError(429, "too many requests", retry_after_seconds=9e9), MAX_RETRY_AFTER_SECONDS),
        (ClusterError(429, DENIED_BY_429, retry_after_seconds=60.0), 0.0),
    ],
)
async def test_api_server_that_asks_to_wait_is_left_alone_by_all_for_that_time(
    error: ClusterError | None, pause_seconds: float
) -> None:
    slots, api = begin()
    api.errors.extend([error, error])
    slots.offer(Job(api, "first", 2))
    await asyncio.sleep(WRITE_SECONDS + 0.1)
    slots.offer(Job(api, "a", 4))
    slots.offer(Job(api, "b", 4, "other"))
    await asyncio.sleep(MAX_RETRY_AFTER_SECONDS)
    assert [moment for moment, _ in api.sent[2:]] == [WRITE_SECONDS + (pause_seconds or 0.1)] * 8


async def test_fault_in_a_write_takes_no_slot_away(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Job):
        def next_write(self) -> Coroutine[Any, Any, ClusterError | None]:
            super().next_write().close()

            async def fail() -> None:
                raise KeyError("bug")

            return fail()

    slots, api = begin()
    slots.offer(Broken(api, "broken", MAX_WRITES))
    slots.offer(Job(api, "sound", MAX_WRITES))
    await asyncio.sleep(0.5)
    assert api.on_their_way.total() == MAX_WRITES // 2
    assert "KeyError: 'bug'" in caplog.text


async def test_closing_ends_what_is_on_its_way() -> None:
    slots, api = begin()
    slots.offer(Job(api, "a", 3 * MAX_WRITES))
    await asyncio.sleep(0.5)
    await slots.close()
    await asyncio.sleep(5)
    assert len(api.sent) == MAX_WRITES // 2


@pytest.mark.parametrize("namespaces", [1, 1000])
async def test_turn_costs_the_same_however_many_wait(namespaces: int) -> None:
    slots, api = begin()
    jobs = [
        Job(api, f"job-{number}", 9, f"team-{number % namespaces}", hangs=True)
        for number in range(1000)
    ]
    for job in jobs:
        slots.offer(job)
    assert count_lines(lambda: slots.offer(jobs[0])) < 400
