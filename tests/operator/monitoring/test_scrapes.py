import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.monitoring.probes import FRESH_SECONDS, Scrapes
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.runtime.gauges import read_gauges

from tests.operator.builders import a_manifest
from tests.operator.event_loop_time import MAX_TURN_CALLS, calls_in_the_best_try, longest_turn

pytestmark = pytest.mark.process

TIME = "2026-01-01T12:00:00Z"


class Rendering:
    """Counts how often the text is made, in which threads."""

    def __init__(self) -> None:
        self.now = 100.0
        self.values = 0
        self.threads: list[int] = []
        self.fails = False
        self.may_end = threading.Event()
        self.may_end.set()
        self.scrapes = Scrapes(self._begin, lambda: self.now)

    def _begin(self) -> Callable[[], bytes]:
        self.values += 1
        return partial(self._render, self.values)

    def _render(self, value: int) -> bytes:
        self.threads.append(threading.get_ident())
        assert self.may_end.wait(30)
        if self.fails:
            raise ValueError("a fault of ours")
        return b"%d" % value


async def test_text_is_made_once_in_some_seconds_and_not_by_the_event_loop() -> None:
    rendering = Rendering()
    assert [await rendering.scrapes.text() for _ in range(3)] == [b"1"] * 3
    rendering.now += FRESH_SECONDS - 0.1
    assert await rendering.scrapes.text() == b"1"
    rendering.now += 0.1
    assert await rendering.scrapes.text() == b"2"
    assert len(rendering.threads) == 2
    assert threading.get_ident() not in rendering.threads


async def test_all_who_ask_meanwhile_get_the_same_text_also_if_one_goes_away() -> None:
    rendering = Rendering()
    rendering.may_end.clear()
    asking = [asyncio.create_task(rendering.scrapes.text()) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()
    rendering.now += 2 * FRESH_SECONDS
    asking.append(asyncio.create_task(rendering.scrapes.text()))
    await asyncio.sleep(0)
    rendering.may_end.set()
    assert await asyncio.gather(*asking[1:]) == [b"1"] * 5
    assert rendering.values == 1


async def test_text_that_could_not_be_made_is_tried_again_no_sooner() -> None:
    rendering = Rendering()
    rendering.fails = True
    for _ in range(3):
        with pytest.raises(ValueError, match="a fault of ours"):
            await rendering.scrapes.text()
    assert rendering.values == 1
    rendering.fails = False
    rendering.now += FRESH_SECONDS
    assert await rendering.scrapes.text() == b"2"


async def test_no_turn_of_the_event_loop_is_long_while_a_thousand_namespaces_are_scraped() -> None:
    cache, metrics, registry = Cache(), Metrics(per_job=True), AgentRegistry()
    workers = [
        {"name": f"worker-{n}", "index": n, "state": "Running", "rank": n} for n in range(10)
    ]
    jobs = []
    for number in range(1000):
        job = a_manifest(f"job-{number}", replicas=10, maximum=10)
        job["metadata"] |= {"namespace": f"team-{number}", "uid": f"uid-{number}"}
        jobs.append(job | {"status": {"state": "Running", "workers": workers}})
    cache.replace_all(jobs, [], [], 1.0)

    def begin() -> Callable[[], bytes]:
        gauges = read_gauges(cache, registry, WorkQueue(), leading=True, now=1.0, time=TIME)
        return partial(metrics.render, gauges)

    async def in_a_scrape() -> float:
        scrape = asyncio.create_task(Scrapes(begin).text())
        longest = 0.0
        while not scrape.done():
            longest = max(longest, await longest_turn(0.05))
        assert (await scrape).count(b'namespace="team-') > 1000 * 30
        return longest

    assert await calls_in_the_best_try(in_a_scrape) < MAX_TURN_CALLS
