"""The queue's contract."""

import asyncio

from elastic_pytorch_operator.workqueue import WorkQueue


async def test_many_additions_are_one_piece_of_work() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(5):
        queue.add("a")
    assert await queue.get() == "a"
    assert len(queue) == 0


async def test_key_is_worked_on_by_one_at_a_time() -> None:
    queue: WorkQueue[str] = WorkQueue()
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
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 30)
    queue.add("b", 0.05)
    queue.add("a", 0.01)
    queue.add("a", 20)
    assert [await asyncio.wait_for(queue.get(), 5), await asyncio.wait_for(queue.get(), 5)] == ["a", "b"]
    assert len(queue) == 0


async def test_what_was_added_before_work_begins_has_not_waited() -> None:
    class Waits:
        def __init__(self) -> None:
            self.seconds: list[float] = []

        def queued(self) -> None: ...

        def retried(self) -> None: ...

        def taken(self, seconds: float) -> None:
            self.seconds.append(seconds)

        def worked(self, seconds: float) -> None: ...

    waits = Waits()
    queue: WorkQueue[str] = WorkQueue(waits)
    queue.add("later", 0.7)
    queue.add("a")
    await asyncio.sleep(0.5)
    queue.begin()
    assert [await asyncio.wait_for(queue.get(), 5), await asyncio.wait_for(queue.get(), 5)] == ["a", "later"]
    assert waits.seconds[0] < 0.4


async def test_failures_wait_longer_each_time_until_forgiven() -> None:
    queue: WorkQueue[str] = WorkQueue()
    assert [queue.add_after_failure("a") for _ in range(3)] == [0.2, 0.4, 0.8]
    queue.forgive("a")
    assert queue.add_after_failure("a") == 0.2


async def test_worker_that_is_cancelled_just_as_it_is_woken_ends() -> None:
    queue: WorkQueue[str] = WorkQueue()

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
