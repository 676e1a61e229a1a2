"""How long a turn of the event loop takes: in the time of its thread, which other programs do not lengthen."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

MAX_TURN_SECONDS = 0.02
TRIES = 40


async def longest_turn(seconds: float) -> float:
    """Seconds that the longest turn takes within a period."""
    loop, found, end, done = asyncio.get_running_loop(), 0.0, time.monotonic() + seconds, asyncio.Event()
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


async def in_the_best_try(measure: Callable[[], Awaitable[float]]) -> float:
    """The longest turn in the best of several tries: what lengthens turns does so in each, a busy machine in some."""
    turns: list[float] = []
    with without_search_for_garbage():
        while len(turns) < TRIES and (not turns or min(turns) >= MAX_TURN_SECONDS):
            turns.append(await measure())
    print(f"the longest turns of each try: {', '.join(f'{turn * 1000:.1f} ms' for turn in turns)}")
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
