"""Writes are sent when their turn comes; what decides that has its table in `test_write_shares`."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.reconcile.write_shares import MAX_SHARE, MAX_WRITES
from elastic_pytorch_operator.reconcile.write_slots import WriteSlots

from tests.operator.virtual_time import run_in_virtual_time

WRITE_SECONDS = 1.0


class Api:
    """Takes writes that last a second; remembers when each was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, str]] = []
        self.on_its_way = 0
        self.most = 0
        self.errors: deque[ClusterError | None] = deque()

    async def take(self, name: str) -> ClusterError | None:
        self.sent.append((round(asyncio.get_running_loop().time(), 1), name))
        self.on_its_way += 1
        self.most = max(self.most, self.on_its_way)
        await asyncio.sleep(WRITE_SECONDS)
        self.on_its_way -= 1
        return self.errors.popleft() if self.errors else None

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.sent]


class Job:
    def __init__(self, api: Api, name: str, writes: int, *, urgent: bool = True, namespace: str = "team") -> None:
        self.api, self.name, self.left, self.urgent, self.namespace = api, name, writes, urgent, namespace

    def has_urgent(self) -> bool | None:
        return self.urgent if self.left else None

    def next_write(self) -> Callable[[], Awaitable[ClusterError | None]]:
        self.left -= 1
        return lambda: self.api.take(self.name)


def play(story: Callable[[WriteSlots, Api], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        slots = WriteSlots(clock=asyncio.get_running_loop().time)
        await story(slots, Api())
        await slots.close()

    run_in_virtual_time(main())


def test_so_many_writes_are_on_their_way_and_no_more() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        for number in range(2 * MAX_WRITES):
            slots.offer(Job(api, f"job-{number}", 4, namespace=f"team-{number}"))
        await asyncio.sleep(9.5)
        assert (len(api.sent), api.most) == (8 * MAX_WRITES, MAX_WRITES)
        assert slots.longest_write_seconds == 0

    play(story)


def test_age_of_the_oldest_write_is_known() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        slots.offer(Job(api, "a", 1))
        await asyncio.sleep(0.4)
        slots.offer(Job(api, "b", 1))
        await asyncio.sleep(0.2)
        assert slots.longest_write_seconds == pytest.approx(0.6, abs=0.01)

    play(story)


def test_job_with_thousands_of_writes_delays_another_by_one() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        slots.offer(Job(api, "large", 4000))
        slots.offer(Job(api, "small", 2))
        await asyncio.sleep(1.5)
        assert api.names[MAX_SHARE : MAX_SHARE + 4].count("small") == 2

    play(story)


def test_urgent_writes_go_before_others() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        slots.offer(Job(api, "first", MAX_SHARE))
        for number in range(200):
            slots.offer(Job(api, f"progress-{number}", 1, urgent=False))
        slots.offer(Job(api, "loss", 3))
        await asyncio.sleep(1.5)
        assert api.names[MAX_SHARE:][:4].count("loss") == 3

    play(story)


def test_sender_that_no_longer_has_anything_loses_its_turn() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        slots.offer(Job(api, "first", MAX_SHARE))
        job = Job(api, "scaled down", 10)
        slots.offer(job)
        job.left = 0
        slots.offer(job)
        await asyncio.sleep(1.5)
        assert "scaled down" not in api.names

    play(story)


def test_api_server_that_asks_to_wait_is_left_alone_by_all() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        api.errors.append(ClusterError(429, "too many requests", retry_after_seconds=7.0))
        slots.offer(Job(api, "a", 1))
        await asyncio.sleep(1.5)
        slots.offer(Job(api, "a", 100))
        slots.offer(Job(api, "b", 100, namespace="b"))
        await asyncio.sleep(6.0)
        assert len(api.sent) == 1
        await asyncio.sleep(1.0)
        assert api.sent[1][0] == 8.0
        await asyncio.sleep(20)
        assert len(api.sent) == 201

    play(story)


def test_api_server_that_answers_nothing_is_tried_less_and_less_often() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        api.errors.extend(ClusterError(0, "no answer") for _ in range(6))
        for name in "ab":
            slots.offer(Job(api, name, 1, namespace=name))
        await asyncio.sleep(1.1)
        for name in "abcdef":
            slots.offer(Job(api, name, 2, namespace=name))
        await asyncio.sleep(100)
        assert [moment for moment, _ in api.sent] == [0.0] * 2 + [1.2] * 2 + [2.6] * 2 + [4.4] * 2 + [5.4] * 4 + [6.4] * 2

    play(story)


def test_fault_in_a_write_takes_no_slot_away() -> None:
    class Broken(Job):
        def next_write(self) -> Callable[[], Awaitable[ClusterError | None]]:
            super().next_write()

            async def fail() -> None:
                raise KeyError("bug")

            return fail

    async def story(slots: WriteSlots, api: Api) -> None:
        slots.offer(Broken(api, "broken", 2 * MAX_SHARE))
        slots.offer(Job(api, "sound", MAX_SHARE))
        await asyncio.sleep(0.5)
        assert api.most == MAX_SHARE

    play(story)


def test_closing_ends_what_is_on_its_way() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        slots.offer(Job(api, "a", 3 * MAX_SHARE))
        await asyncio.sleep(0.5)
        await slots.close()
        await asyncio.sleep(5)
        assert len(api.sent) == MAX_SHARE

    play(story)
