import gc
import json
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.runtime.run import (
    JSON_LEVELS,
    YOUNG_OBJECTS,
    allow_deep_json,
    collect_rarely,
)
from elastic_pytorch_operator.spec.job import Job, JobKey

from tests.operator.builders import KEY, a_manifest


@pytest.mark.parametrize(("opens", "closes"), [('{"x": ', "}"), ("[", "]")])
def test_job_with_as_many_levels_as_the_api_server_reads_stops_no_other(
    opens: str, closes: str
) -> None:
    deep = a_manifest("deep", template={"spec": {"containers": [{"name": "pytorch", "x": "HERE"}]}})
    levels = JSON_LEVELS - 20
    text = json.dumps([deep, a_manifest()]).replace('"HERE"', f"{opens * levels}1{closes * levels}")
    limit, cache = sys.getrecursionlimit(), Cache()
    try:
        allow_deep_json()
        cache.replace_all(json.loads(text), [], [], 1.0)
    finally:
        sys.setrecursionlimit(limit)
    deep_job, other = cache.job(JobKey("default", "deep")), cache.job(KEY)
    assert isinstance(deep_job, Job)
    assert isinstance(other, Job)
    assert (deep_job.problem.split(":")[0], other.problem) == ("spec.template", "")


LONG_LIVED = 30_000  # objects, as of pods and connections
IN_FLIGHT = 300  # requests
AT_ONCE = 100  # of them come in one turn of the event loop
OBJECTS_OF_A_REQUEST = 30
TURNS = 300


@pytest.fixture(autouse=True)
def usual_collection() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()  # those of the tests
    gc.set_threshold(700, 10, 10)
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


class Circle:
    def __init__(self) -> None:
        self.itself = self


def searches_of_all() -> int:
    """How often all objects are searched while requests come, each of which is held a while."""
    long_lived = [[i] for i in range(LONG_LIVED)]
    gc.collect()
    searched = 0

    def count(phase: str, info: dict[str, Any]) -> None:
        nonlocal searched
        searched += phase == "start" and info["generation"] == 2

    held: deque[list[list[list[int]]]] = deque(maxlen=IN_FLIGHT // AT_ONCE)
    gc.callbacks.append(count)
    try:
        for turn in range(TURNS):
            held.append([[[turn] for _ in range(OBJECTS_OF_A_REQUEST)] for _ in range(AT_ONCE)])
    finally:
        gc.callbacks.remove(count)
    assert len(long_lived) == LONG_LIVED
    return searched


def test_requests_that_are_held_cause_no_search_of_all_objects() -> None:
    collect_rarely()
    assert searches_of_all() == 0


def test_circles_do_not_pile_up() -> None:
    collect_rarely()
    freed: list[None] = []
    for _ in range(3 * YOUNG_OBJECTS):
        weakref.finalize(Circle(), freed.append, None).atexit = False
    assert len(freed) >= YOUNG_OBJECTS
