from typing import Any

from elastic_pytorch_operator.planning.stock.group import (
    START_SECONDS,
    StockGroup,
    adopt_group,
    next_group,
)

from tests.operator.builders import NOW, a_job, a_pod, a_round, a_target
from tests.situations import situations

SETTLED = NOW - 60


def group(*indices: int) -> StockGroup:
    return StockGroup(a_round(*indices, number=4), frozenset(f"w{i}" for i in indices), SETTLED)


@situations(
    "before, running, job, victims, round_",
    {
        "no worker runs": (StockGroup(since=SETTLED), [], {}, [], None),
        "all run for the first time": (
            StockGroup(),
            [0, 1, 2],
            {},
            [],
            ("FirstRound", 3, "3 workers run"),
        ),
        "no change": (group(0, 1, 2), [0, 1, 2], {}, [], None),
        "one is lost": (group(0, 1, 2), [0, 2], {}, [], ("WorkerLost", 2, "w1 has failed")),
        "one is replaced": (group(0, 1, 2), [0, 2, 3], {}, [], ("WorkerLost", 3, "w1 has failed")),
        "one was too many": (group(0, 1, 2), [0, 1], {}, ["w2"], ("ScaledDown", 2, "w2 left")),
        "the last one joins": (group(0, 1), [0, 1, 2], {}, [], ("WorkerJoined", 3, "w2 joined")),
        "too few are left": (
            group(0, 1),
            [0],
            {"minimum": 2},
            [],
            ("BelowMinimum", 0, "1 workers run, training needs 2"),
        ),
        "suspended": (
            group(0),
            [],
            {"suspend": True},
            [],
            ("JobSuspended", 0, "0 workers run, training needs 1"),
        ),
    },
)
def test_round(
    before: StockGroup,
    running: list[int],
    job: dict[str, Any],
    victims: list[str],
    round_: tuple[str, int, str] | None,
) -> None:
    after, recheck = next_group(
        a_job(**job),
        a_target(a_job(**job)),
        before,
        [a_pod(i) for i in running],
        {"w1": "has failed"},
        victims,
        NOW,
    )
    changed = after.round if after.round != before.round else None
    assert (changed and (changed.reason, changed.size, changed.cause)) == round_
    assert recheck is None


def test_newcomers_are_waited_for_while_more_may_come() -> None:
    job, pods = a_job(replicas=4), [a_pod(i) for i in range(3)]
    waiting, recheck = next_group(job, a_target(job), group(0, 1), pods, {}, (), NOW)
    assert (waiting.round, waiting.since, recheck) == (
        group(0, 1).round,
        NOW,
        NOW + job.settle_seconds + START_SECONDS,
    )
    assert recheck is not None
    joined, _ = next_group(job, a_target(job), waiting, pods, {}, (), recheck)
    assert joined.round is not None
    assert (joined.round.number, joined.round.workers) == (5, ("w0", "w1", "w2"))


def test_number_follows_that_of_the_status() -> None:
    after, _ = next_group(
        a_job(status={"round": 9}), a_target(a_job()), group(0, 1), [a_pod(0)], {}, (), NOW
    )
    assert after.round is not None
    assert after.round.number == 10


def test_operator_that_starts_finds_the_group_of_the_status() -> None:
    workers = [
        {"name": f"w{i}", "index": i, "state": state}
        for i, state in enumerate(("Running", "Running", "Starting"))
    ]
    found = adopt_group(
        a_job(status={"round": 4, "worldSize": 2, "workers": workers}), [a_pod(0)], NOW
    )
    assert found.round is not None
    assert (found.round.number, found.round.workers, found.running) == (4, ("w0", "w1"), {"w0"})
    assert adopt_group(a_job(), [], NOW).round is None


def test_group_of_a_large_job_is_found_by_indexes_that_the_status_does_not_list() -> None:
    before, after = "2026-01-01T00:00:00Z", "2026-01-01T00:09:00Z"
    status = {
        "round": 4,
        "worldSize": 4,
        "workers": [{"name": "w0", "index": 0, "state": "Running"}],
        "unlistedWorkers": {"Running": "1-3", "Starting": "4"},
        "operatorState": {"newestPodTime": before},
    }
    running = [a_pod(0), a_pod(1, creation_time=before), a_pod(3, name="new", creation_time=after)]
    found = adopt_group(a_job(status=status), running, NOW)
    assert found.round is not None
    assert found.round.workers == ("w0", "w1", "worker 2", "worker 3"), "the pods of two were lost"
