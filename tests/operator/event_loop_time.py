"""How long work holds the event loop, in calls of a function that does nothing.

Counted is the time of this thread, and the best of several tries, which other programs lengthen
little.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

MAX_TURN_CALLS = 500_000  # 20 ms where a call takes 40 ns
TRIES = 40
YARDSTICK_CALLS = 50_000


def fits(work: Callable[[], object], calls: float) -> bool:
    """Whether work takes no longer than that number of calls in one of some tries."""
    taken: list[float] = []
    with without_search_for_garbage():
        while len(taken) < TRIES and (not taken or min(taken) > calls):
            began = time.thread_time()
            work()
            taken.append((time.thread_time() - began) / _seconds_of_a_call())
    print(f"{min(taken) / 1000:.0f} thousand calls at best, {calls / 1000:.0f} at most")
    return min(taken) <= calls


async def longest_turn(seconds: float) -> float:
    """Seconds that the longest turn takes within a period."""
    loop, found, end, done = (
        asyncio.get_running_loop(),
        0.0,
        time.monotonic() + seconds,
        asyncio.Event(),
    )
    last = time.thread_time()

    def turn() -> None:
        nonlocal found, last
        now = time.thread_time()
        found, last = max(found, now - last), now
        if time.monotonic() > end:
            done.set()
        else:
            loop.call_later(0.001, turn)

    loop.call_soon(turn)
    await done.wait()
    return found


async def calls_in_the_best_try(measure: Callable[[], Awaitable[float]]) -> float:
    """The longest turn in the best of several tries: a busy machine lengthens only some."""
    turns: list[float] = []
    with without_search_for_garbage():
        while len(turns) < TRIES and (not turns or min(turns) >= MAX_TURN_CALLS):
            turns.append(await measure() / _seconds_of_a_call())
    print(
        "the longest turns of each try: "
        f"{', '.join(f'{turn / 1000:.0f} thousand calls' for turn in turns)}"
    )
    return min(turns)


@contextmanager
def without_search_for_garbage() -> Iterator[None]:
    """A search takes as long as there are objects of other tests; the operator searches rarely."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _seconds_of_a_call() -> float:
    began = time.thread_time()
    for _ in range(YARDSTICK_CALLS):
        _nothing()
    return (time.thread_time() - began) / YARDSTICK_CALLS


def _nothing() -> None:
    pass
