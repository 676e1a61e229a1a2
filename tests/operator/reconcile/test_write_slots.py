"""Whose write is next, how many are on their way, and when none is sent."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.reconcile.write_slots import MAX_PARALLEL_WRITES, WriteSlots

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
    def __init__(self, api: Api, name: str, writes: int, *, urgent: bool = True) -> None:
        self.api, self.name, self.left, self.urgent = api, name, writes, urgent

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
        slots.offer(Job(api, "a", 4 * MAX_PARALLEL_WRITES))
        await asyncio.sleep(4.5)
        assert (len(api.sent), api.most) == (4 * MAX_PARALLEL_WRITES, MAX_PARALLEL_WRITES)
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
        assert api.names[MAX_PARALLEL_WRITES : MAX_PARALLEL_WRITES + 4].count("small") == 2

    play(story)


def test_urgent_writes_go_before_others() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        slots.offer(Job(api, "first", MAX_PARALLEL_WRITES))
        for number in range(200):
            slots.offer(Job(api, f"progress-{number}", 1, urgent=False))
        slots.offer(Job(api, "loss", 3))
        await asyncio.sleep(1.5)
        assert api.names[MAX_PARALLEL_WRITES:][:4].count("loss") == 3

    play(story)


def test_sender_that_no_longer_has_anything_loses_its_turn() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        slots.offer(Job(api, "first", MAX_PARALLEL_WRITES))
        job = Job(api, "scaled down", 10)
        slots.offer(job)
        job.left = 0
        await asyncio.sleep(1.5)
        assert "scaled down" not in api.names

    play(story)


def test_api_server_that_asks_to_wait_is_left_alone_by_all() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        api.errors.append(ClusterError(429, "too many requests", retry_after_seconds=7.0))
        slots.offer(Job(api, "a", 1))
        await asyncio.sleep(1.5)
        slots.offer(Job(api, "a", 100))
        slots.offer(Job(api, "b", 100))
        await asyncio.sleep(6.0)
        assert len(api.sent) == 1
        await asyncio.sleep(1.0)
        assert (api.sent[1][0], len(api.sent)) == (8.0, 1 + MAX_PARALLEL_WRITES // 2), "then half as many at once"
        await asyncio.sleep(20)
        assert (len(api.sent), slots.limit) == (201, MAX_PARALLEL_WRITES)

    play(story)


def test_many_that_are_asked_to_wait_together_are_one_request_to_wait() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        api.errors.extend(ClusterError(429, "too many requests") for _ in range(MAX_PARALLEL_WRITES))
        slots.offer(Job(api, "a", 2 * MAX_PARALLEL_WRITES))
        await asyncio.sleep(2.5)
        assert slots.limit == MAX_PARALLEL_WRITES // 2
        assert len(api.sent) == MAX_PARALLEL_WRITES + slots.limit

    play(story)


def test_api_server_that_does_not_answer_is_tried_by_one_write_at_a_time_less_and_less_often() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        away = 50 + 4
        api.errors.extend(ClusterError(0, "no answer") for _ in range(away))
        slots.offer(Job(api, "a", 500))
        await asyncio.sleep(100)
        assert [moment for moment, _ in api.sent[50 : away + 3]] == [1.2, 2.6, 4.4, 7.0, 11.2, 12.2, 12.2]
        assert len(api.sent) == 500
        assert slots.limit == MAX_PARALLEL_WRITES

    play(story)


@pytest.mark.parametrize("code", [403, 409, 422, 500])
def test_other_errors_are_answers(code: int) -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        api.errors.append(ClusterError(code, "no"))
        slots.offer(Job(api, "a", MAX_PARALLEL_WRITES + 1))
        await asyncio.sleep(1.5)
        assert len(api.sent) == MAX_PARALLEL_WRITES + 1

    play(story)


def test_fault_in_a_write_takes_no_slot_away() -> None:
    class Broken(Job):
        def next_write(self) -> Callable[[], Awaitable[ClusterError | None]]:
            super().next_write()

            async def fail() -> None:
                raise KeyError("bug")

            return fail

    async def story(slots: WriteSlots, api: Api) -> None:
        slots.offer(Broken(api, "broken", 2 * MAX_PARALLEL_WRITES))
        slots.offer(Job(api, "sound", MAX_PARALLEL_WRITES))
        await asyncio.sleep(0.5)
        assert api.most == MAX_PARALLEL_WRITES

    play(story)


def test_closing_ends_what_is_on_its_way() -> None:
    async def story(slots: WriteSlots, api: Api) -> None:
        slots.offer(Job(api, "a", 3 * MAX_PARALLEL_WRITES))
        await asyncio.sleep(0.5)
        await slots.close()
        await asyncio.sleep(5)
        assert len(api.sent) == MAX_PARALLEL_WRITES

    play(story)
