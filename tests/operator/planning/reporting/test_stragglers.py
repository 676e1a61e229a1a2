from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch.progress.work_windows import WINDOW_SECONDS
from elastic_pytorch_operator.model.actions import PatchStatus, RecordEvent
from elastic_pytorch_operator.model.observed import Observed, Progress
from elastic_pytorch_operator.planning.memory import Memory, recall
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.plan_rounds import REGULAR_SECONDS
from elastic_pytorch_operator.planning.reporting import stragglers
from elastic_pytorch_operator.planning.reporting.stragglers import (
    MAX_EVENTS,
    MAX_LISTED,
    NO_STRAGGLERS,
    WINDOWS,
    Straggler,
    Stragglers,
    advance_stragglers,
    read_stragglers,
    record_stragglers,
)

from tests.operator.builders import NOW, TIME, a_job, a_pod, a_round, an_agent, observed
from tests.situations import situations

Work = Mapping[int, Sequence[float | None]]  # seconds by worker and local rank

EVEN: Work = {0: [0.1], 1: [0.1], 2: [0.1]}
SLOW: Work = {0: [0.1], 1: [0.2], 2: [0.1]}
BETWEEN: Work = {0: [0.1], 1: [0.12], 2: [0.1]}


def seen(
    work: Work, windows: int | None, *, step: float = 0.25, number: int = 1, **fields: Any
) -> Observed:
    """A group whose workers have reported their windows."""
    agents = [
        an_agent(
            f"w{index}",
            **{"round_": number, "local_world_size": max(1, len(seconds)), **fields},
            progress=Progress(
                step=9, work_windows=windows, work_seconds=tuple(seconds), step_seconds=step
            ),
        )
        for index, seconds in work.items()
    ]
    pods = [a_pod(index, node=f"node-{index}") for index in work]
    return observed(pods, agents, round=a_round(*work, number=number))


def after(course: Sequence[Work], known: Stragglers = NO_STRAGGLERS, **fields: Any) -> Stragglers:
    """What is known after windows of one round, of which the first one is number 1."""
    for number, work in enumerate(course, start=1):
        situation = seen(work, number, **fields)
        known = advance_stragglers(known, situation.round, situation)
    return known


def ranks(known: Stragglers) -> list[int]:
    return [straggler.rank for straggler in known.slow]


@situations(
    "course, found",
    {
        "all are equal": ([EVEN] * 9, []),
        "the first window of a round counts for nothing": ([SLOW] * WINDOWS, []),
        "slow in enough windows in a row": ([SLOW] * (WINDOWS + 1), [1]),
        "not in a row": ([SLOW, SLOW, SLOW, EVEN, SLOW, SLOW], []),
        "a window between the bounds breaks the row": ([SLOW, SLOW, SLOW, BETWEEN, SLOW], []),
        "a little slower": ([BETWEEN] * 9, []),
        "not slow for too few windows": ([*[SLOW] * 4, *[EVEN] * (WINDOWS - 1)], [1]),
        "recovered": ([*[SLOW] * 4, *[EVEN] * WINDOWS], []),
        "slow again before it has recovered": ([*[SLOW] * 4, EVEN, EVEN, SLOW, EVEN, EVEN], [1]),
        "a little slower is no recovery": ([*[SLOW] * 4, *[BETWEEN] * 9], [1]),
        "of two ranks, neither can be called slow": ([{0: [0.1], 1: [0.2]}] * 9, []),
        "ranks count, not pods": ([{0: [0.1, 0.3], 1: [0.1, 0.1]}] * 9, [1]),
        "the slowest first": ([{0: [0.1, 0.1], 1: [0.1, 0.4], 2: [0.2, 0.1]}] * 9, [3, 4]),
        "an older agent among others": ([{0: [0.1], 1: [0.2], 2: [0.1], 3: []}] * 9, [1]),
        "too few ranks report": ([{0: [0.1], 1: [0.2], 2: []}] * 9, []),
        "some local ranks do not report": (
            [{0: [0.1, None], 1: [0.2, None], 2: [0.1, None]}] * 9,
            [2],
        ),
        "work that takes no time": ([{0: [0.0], 1: [0.0], 2: [0.1]}] * 9, [2]),
    },
)
def test_course(course: list[Work], found: list[int]) -> None:
    assert ranks(after(course)) == found


@situations(
    "step, found",
    {"all": (0.2, [1]), "a 20th": (2.0, [1]), "less": (2.1, []), "nearly nothing": (20.0, [])},
)
def test_slow_work_that_is_a_small_part_of_a_step_is_no_matter(
    step: float, found: list[int]
) -> None:
    assert ranks(after([SLOW] * 9, step=step)) == found


def test_windows_count_only_once_and_when_all_have_reported_them() -> None:
    known = after([SLOW] * WINDOWS)
    same = seen(SLOW, WINDOWS)
    for _ in range(9):
        assert advance_stragglers(known, same.round, same) is known
    ahead = seen(SLOW, WINDOWS + 1)
    behind = replace(ahead, agents={**ahead.agents, "w0": same.agents["w0"]})
    assert advance_stragglers(known, behind.round, behind) is known


@situations("fields", {"a stopping agent": {"state": "stopping"}, "an older round": {"round_": 1}})
def test_only_the_running_members_of_the_round_are_measured(fields: dict[str, Any]) -> None:
    assert ranks(after([SLOW] * 9, number=2, **fields)) == []


def test_each_window_is_judged_by_a_plan_of_its_own() -> None:
    """No heartbeat asks for one: plans come as often as windows end at most."""
    assert REGULAR_SECONDS <= WINDOW_SECONDS


def test_agents_that_report_no_windows_change_nothing() -> None:
    assert after([EVEN]) == Stragglers(round=1)
    old = seen({0: [], 1: [], 2: []}, None)
    assert advance_stragglers(NO_STRAGGLERS, old.round, old) == Stragglers(round=1)


def test_a_straggler_stays_one_with_its_worker_in_the_next_round() -> None:
    known = after([SLOW] * 4)
    without_w0: Work = {1: [0.2], 2: [0.1], 3: [0.1]}
    moved = seen(without_w0, None, number=2)
    kept = advance_stragglers(known, moved.round, moved)
    assert ranks(kept) == [0], "its rank in the new round"
    assert kept.windows == 0
    assert not record_stragglers(known, kept), "it is known"
    assert ranks(after([{1: [0.1], 2: [0.1], 3: [0.1]}] * (WINDOWS + 1), kept, number=2)) == [], (
        "they are measured from the start"
    )
    others = seen({0: [0.1], 2: [0.1], 3: [0.1]}, None, number=3)
    gone = advance_stragglers(known, others.round, others)
    assert ranks(gone) == []
    assert not record_stragglers(known, gone), "it has left, and whether it is better is not known"


@situations("work", {"nothing trains": {}, "two ranks": {0: [], 1: []}})
def test_group_that_cannot_be_measured_has_none(work: Work) -> None:
    known, small = after([SLOW] * 4), seen(work, None, number=2)
    assert advance_stragglers(known, small.round, small) == NO_STRAGGLERS


def test_a_new_leader_knows_them_from_the_status_and_says_nothing_twice() -> None:
    known = after([SLOW] * 4)
    told = read_stragglers({"stragglers": known.as_status()})
    assert told.as_status() == known.as_status()
    assert recall(a_job(status={"stragglers": known.as_status()}), NOW, TIME).stragglers == told
    assert advance_stragglers(told, None, observed()) is told, "the round is not known yet"
    again = after([SLOW] * 9, told)
    assert ranks(again) == [1]
    assert not record_stragglers(told, again)


@pytest.mark.parametrize("written", ["much", "1" * 400, "nan", ""])
def test_numbers_that_another_has_written_into_the_status_stop_no_plan(written: str) -> None:
    entry = {"worker": "w", "slowdown": written, "medianSeconds": written}
    [straggler] = read_stragglers({"stragglers": [entry]}).slow
    assert (straggler.slowdown, straggler.seconds) == (stragglers.SLOW, 0.0)


def test_status() -> None:
    [entry] = after([SLOW] * 4).as_status()
    assert entry == {
        "rank": 1,
        "worker": "w1",
        "localRank": 0,
        "node": "node-1",
        "slowdown": "2.0",
        "medianSeconds": "0.1",
    }
    many = Stragglers(tuple(Straggler(f"w{n}", 0, n, "", 2.0, 0.2, 0.1) for n in range(1000)))
    assert len(many.as_status()) == MAX_LISTED


@situations(
    "before, work, events",
    {
        "one is slow": (
            EVEN,
            SLOW,
            [
                "Straggler: Rank 1 (w1 on node-1) works 2.0 times as long in a step as the "
                "group's median rank: "
                "0.2 s instead of 0.1 s. The others wait"
            ],
        ),
        "one event for a worker": (
            {0: [0.1, 0.1, 0.1, 0.1], 1: [0.1, 0.1, 0.1, 0.1]},
            {0: [0.1, 0.1, 0.1, 0.1], 1: [0.1, 0.15, 0.25, 0.2]},
            [
                "Straggler: Ranks 5, 6 and 7 (w1 on node-1) "
                "work 2.5 times as long in a step as the group's median rank: "
                "0.25 s instead of 0.1 s. The others wait"
            ],
        ),
        "over": (
            SLOW,
            EVEN,
            [
                "StragglerRecovered: Rank 1 (w1 on node-1) "
                "is about as fast as the group's median rank again"
            ],
        ),
        "nothing is new": (SLOW, SLOW, []),
    },
)
def test_events(before: Work, work: Work, events: list[str]) -> None:
    course = [before] * 4
    known = after(course)
    assert [
        f"{e.reason}: {e.note}" for e in record_stragglers(known, after([*course, *[work] * 4]))
    ] == events


def test_events_are_few_however_many_are_slow() -> None:
    slow = tuple(Straggler(f"w{n}", 0, n, "", 2.0, 0.2, 0.1) for n in range(50))
    events = record_stragglers(Stragglers(round=1), Stragglers(slow, 1))
    assert len(events) == MAX_EVENTS
    assert events[-1].note.endswith(". The same applies to 46 other workers")


def test_a_plan_tells_of_a_straggler_once_and_the_status_names_it() -> None:
    job, memory, told = a_job(), Memory(), []
    for window in range(1, 9):
        todo = plan(job, seen(SLOW, window), memory)
        memory = todo.memory
        told += [action.reason for action in todo.actions if isinstance(action, RecordEvent)]
        for action in todo.actions:
            if isinstance(action, PatchStatus):
                job = replace(job, status=action.status)
    assert told.count("Straggler") == 1
    assert [entry["worker"] for entry in job.status["stragglers"]] == ["w1"]
    stopped = replace(seen(SLOW, 9), round=a_round(number=2))
    [written] = [
        a
        for a in plan(replace(job, suspend=True, wanted=0), stopped, memory).actions
        if isinstance(a, PatchStatus)
    ]
    assert "stragglers" not in written.status, "nothing trains"
