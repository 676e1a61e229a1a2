import json
from typing import Any

from scale.observations import Observations, Spread, spread


def observed(*said: dict[str, Any]) -> Observations:
    found = Observations()
    for number, fields in enumerate(said, 1):
        found.read(json.dumps({"line": number, **fields}))
    return found


def test_percentiles_are_values_that_occurred() -> None:
    assert spread([]) is None
    assert spread([3.0]) == Spread(3.0, 3.0, 3.0)
    assert spread(range(100, 0, -1)) == Spread(50, 95, 100)
    assert spread([1.0, 2.0, 30.0]) == Spread(2.0, 30.0, 30.0)


def test_count_is_reached_at_the_first_tick_that_has_it() -> None:
    ticks = [{"event": "tick", "at": at, "created": created} for at, created in ((1.0, 0), (1.2, 40), (1.4, 100), (1.6, 100))]
    found = observed(*ticks)
    assert found.reached("created", 100) == 1.4
    assert found.reached("created", 101) is None
    assert found.count("created") == 100
    assert found.count("deleted") == 0


def test_round_after_a_moment_and_of_a_size() -> None:
    told = [
        {"event": "told", "at": at, "job": "a", "round": r, "size": size, "cause": ""}
        for at, r, size in ((1, 1, 6), (2, 2, 10))
    ]
    found = observed(*told)
    assert (found.first("a"), found.first("a", size=10), found.first("a", after=2.0), found.first("b")) == (1, 2, None, None)
    assert found.whole("a", 10)
    assert not found.whole("a", 6)
    assert not found.whole("b", 10)


def test_jobs_are_heard_again_since_that_was_asked_for() -> None:
    heard = [{"event": "heard", "at": at, "job": job} for at, job in ((1, "a"), (3, "a"), (4, "b"))]
    found = observed(heard[0], {"event": "listen", "at": 2}, *heard[1:])
    assert found.heard == {"a": 3, "b": 4}


def test_log_that_is_read_again_changes_nothing() -> None:
    lines = [json.dumps({"line": n, "event": "tick", "at": n, "deleted": n}) for n in (1, 2)]
    found = Observations()
    for line in (*lines, "Traceback (most recent call last):", "[]", *lines):
        found.read(line)
    assert len(found.ticks) == 2


def test_part_of_a_run() -> None:
    waits = {"median": 0.01, "worst": 0.5}
    ticks = [
        {"event": "tick", "at": at, "heartbeats": at * 10, "failed": at, "late": at / 10, "waits": waits, "errors": {"503": at}}
        for at in range(5)
    ]
    found = observed(*ticks).between(1, 3)
    assert (found["heartbeats_per_second"], found["heartbeats_failed"], found["generator_late_seconds_worst"]) == (10, 2, 0.3)
    assert found["errors"] == {"503": 2}
    assert observed(*ticks).between(8, 9) == {}
