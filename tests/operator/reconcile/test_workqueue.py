import asyncio

import pytest
from elastic_pytorch_operator.reconcile.workqueue import (
    ENTRIES_PER_KEY,
    MAX_BACKOFF_SECONDS,
    SPARE_ENTRIES,
    WorkQueue,
)

from tests.situations import situations


def a_queue() -> WorkQueue[str]:
    return WorkQueue(clock=asyncio.get_running_loop().time)


async def test_many_additions_are_one_piece_of_work() -> None:
    queue = a_queue()
    for _ in range(5):
        queue.add("a")
    assert await queue.get() == "a"
    assert len(queue) == 0


async def test_key_is_worked_on_by_one_at_a_time() -> None:
    queue = a_queue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("b")
    assert await queue.get() == "b"
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    queue.done("a")
    assert await asyncio.wait_for(waiting, 5) == "a"


async def test_earliest_time_counts() -> None:
    queue = a_queue()
    queue.add("a", 30)
    queue.add("b", 0.05)
    queue.add("a", 0.01)
    queue.add("a", 20)
    assert [await asyncio.wait_for(queue.get(), 5), await asyncio.wait_for(queue.get(), 5)] == [
        "a",
        "b",
    ]
    assert len(queue) == 0


async def test_keys_are_taken_in_once_work_begins() -> None:
    queue: WorkQueue[str] = WorkQueue(begun=False)
    queue.add("a")
    queue.add("later", 10)
    assert len(queue) == 0, (
        "a replica that stands by for weeks does not gather the keys of jobs that are gone"
    )
    queue.begin()
    queue.add("b")
    assert await asyncio.wait_for(queue.get(), 5) == "b"


async def test_failures_wait_longer_each_time_until_forgiven() -> None:
    queue = a_queue()
    assert [queue.add_after_failure("a") for _ in range(3)] == [0.2, 0.4, 0.8]
    assert [queue.add_after_failure("a") for _ in range(2000)][-1] == MAX_BACKOFF_SECONDS
    queue.forget("a")
    assert queue.add_after_failure("a") == 0.2


async def test_worker_that_is_cancelled_just_as_it_is_woken_ends() -> None:
    queue = a_queue()

    async def work() -> None:
        while True:
            await queue.get()

    queue.add("later", 100)
    worker = asyncio.create_task(work())
    await asyncio.sleep(0.05)
    queue.add("sooner", 50)
    await asyncio.sleep(0)
    worker.cancel()
    await asyncio.wait([worker], timeout=5)
    assert worker.cancelled()


async def test_key_that_becomes_due_while_it_is_worked_on_waits_for_the_end_of_that() -> None:
    queue = a_queue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a", 0.01)
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    queue.done("a")
    assert await asyncio.wait_for(waiting, 5) == "a"
    assert len(queue) == 0


async def test_key_wakes_one_worker() -> None:
    queue = a_queue()
    workers = [asyncio.create_task(queue.get()) for _ in range(8)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b", 0.01)
    await asyncio.wait(workers, timeout=0.2)
    assert sorted(worker.result() for worker in workers if worker.done()) == ["a", "b"]
    for worker in workers:
        worker.cancel()


@situations(
    "added, taken",
    {
        "first come, first served": ("abc", "abc"),
        "one that becomes urgent goes before the others, once": ("abA", "ab"),
        "of those that wait, too": ("abB", "ba"),
        "urgent ones go first": ("aBcD", "bdac"),
        "one that is urgent stays so": ("Aab", "ab"),
        "a key is there once": ("aab", "ab"),
        "nothing but urgent ones": ("abABCDEFGHIJKLM", "abcdefghijklm"),
        "the others get their turn": ("zyABCDEFGHIJKLMNOPQ", "abcdefghzijklmnopyq"),
    },
)
async def test_urgent_keys_go_first(added: str, taken: str) -> None:
    queue = a_queue()
    for key in added:
        queue.add(key.lower(), urgent=key.isupper())
    assert [await queue.get() for _ in range(len(taken))] == list(taken)
    assert len(queue) == 0
    assert not queue.has_ready


async def test_what_becomes_due_after_a_delay_is_not_urgent_unless_it_is_said_to_be() -> None:
    queue = a_queue()
    queue.add("progress", 1.0)
    queue.add("deadline", 1.0, urgent=True)
    await asyncio.sleep(2.0)
    queue.add("loss")
    queue.add("losses of a large job", 0.2)
    await asyncio.sleep(1.0)
    assert [await queue.get() for _ in range(4)] == [
        "deadline",
        "loss",
        "losses of a large job",
        "progress",
    ]


async def test_key_that_becomes_urgent_while_it_is_worked_on_goes_first_afterwards() -> None:
    queue = a_queue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a", urgent=False)
    queue.add("b", urgent=False)
    queue.add("a")
    queue.done("a")
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_later_urgent_work_does_not_hurry_what_is_due_now() -> None:
    queue = a_queue()
    queue.add("a", urgent=False)
    queue.add("b", urgent=False)
    queue.add("b", 30)
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_key_that_waits_becomes_urgent_when_that_is_due() -> None:
    queue = a_queue()
    queue.add("late", 3.0, urgent=True)
    for key in ("a", "b", "late"):
        queue.add(key, 1.0, urgent=False)
    await asyncio.sleep(2)
    assert await queue.get() == "a"
    await asyncio.sleep(2)
    assert [await queue.get(), await queue.get()] == ["late", "b"]


async def test_key_rests_after_work_that_was_long() -> None:
    loop = asyncio.get_running_loop()
    queue = a_queue()
    queue.add("large")
    assert await queue.get() == "large"
    queue.done("large", rest_seconds=2.0)
    queue.add("large")
    queue.add("small", 1.0)
    assert [(await queue.get(), round(loop.time())) for _ in range(2)] == [
        ("small", 1),
        ("large", 2),
    ]


@pytest.mark.simulation
async def test_day_of_additions_leaves_nothing_behind() -> None:
    jobs, day_seconds, pause_seconds = 5, 24 * 3600, 20.0
    loop = asyncio.get_running_loop()
    queue: WorkQueue[int] = WorkQueue(clock=loop.time)
    taken = 0

    async def work() -> None:
        nonlocal taken
        while True:
            key = await queue.get()
            taken += 1
            queue.add(key, 6 * 3600.0)  # a deadline
            queue.add(key, 300.0)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(2)]
    while loop.time() < day_seconds:
        for job in range(jobs):
            queue.add(job, 1.0)  # a heartbeat supersedes what the plan has asked for
        await asyncio.sleep(pause_seconds)
        assert len(queue._heap) <= ENTRIES_PER_KEY * jobs + SPARE_ENTRIES
    assert taken == jobs * day_seconds / pause_seconds
    assert len(queue) == jobs
    for worker in workers:
        worker.cancel()
