"""What counts as a broken promise of the training, and what a fault excuses."""

from dataclasses import replace
from typing import Any

import pytest
from soak.checks.training import (
    Expected,
    check_end,
    check_groups,
    check_repeats,
    check_samples,
    check_units,
    longest_pause,
)
from soak.timeline import Done, Hit, Step, read_training

LIBRARY = Expected("job", minimum=1, maximum=3, processes=1, total=6, epochs=2, samples=6, commits=True)
SHARDED = replace(LIBRARY, repeated=2, copies=True)
PLAIN = Expected("job", minimum=1, maximum=3, processes=1, total=6, repeated=11)
A, B, C, A2, B2 = "job-worker-0-aaaaa", "job-worker-1-bbbbb", "job-worker-2-ccccc", "job-worker-0-yyyyy", "job-worker-1-zzzzz"


def group(number: int, first: int, last: int, *pods: str, at: float | None = None, world: int = 0) -> list[Step]:
    """Steps, one a second: by default step n at second 100 + n."""
    begin = 100.0 + first if at is None else at
    return [
        Step(begin + n - first, pod, rank, world or len(pods), n, number)
        for n in range(first, last + 1)
        for rank, pod in enumerate(pods)
    ]


def hit(kind: str, at: float, until: float | None = None, *pods: str, job: str = "job") -> Hit:
    return Hit(at, at if until is None else until, kind, kind, frozenset({job}) if job else frozenset(), frozenset(pods))


@pytest.mark.parametrize(
    ("steps", "rules"),
    [
        (group(1, 1, 3, A, B), []),
        (group(1, 1, 3, A, B) + group(2, 4, 6, A, B2), []),
        (group(1, 3, 3, B, B2), ["one worker of an index"]),
        (group(1, 1, 2, A, B) + group(1, 3, 3, A, B2), []),
        (group(1, 1, 3, A, world=4), ["groups within minReplicas and maxReplicas"]),
    ],
)
def test_groups(steps: list[Step], rules: list[str]) -> None:
    assert [violation.rule for violation in check_groups(LIBRARY, steps)] == rules


def test_a_group_of_two_processes_a_worker_is_counted_in_workers() -> None:
    expected = Expected("job", minimum=1, maximum=2, processes=2, total=6, commits=True)
    assert not list(check_groups(expected, group(1, 1, 3, A, A, B, B)))


@pytest.mark.parametrize(
    ("pods", "rules"),
    [
        ((0, 1, 2, 3), []),
        ((2, 3, 0, 1), []),
        ((1, 0), ["units in order"]),
        ((0, 3), ["whole units"]),
        ((0, 2, 3, 1), ["units in order"]),
    ],
)
def test_units(pods: tuple[int, ...], rules: list[str]) -> None:
    expected = Expected("job", minimum=2, maximum=6, processes=1, total=6, commits=True, unit=2)
    steps = group(1, 1, 2, *(f"job-worker-{index}-aaaaa" for index in pods))
    assert [violation.rule for violation in check_units(expected, steps)] == rules
    assert not list(check_units(LIBRARY, steps))


AGAIN, LEFT_OUT = "no step done twice", "no step left out"


@pytest.mark.parametrize(
    ("expected", "steps", "hits", "rules"),
    [
        (LIBRARY, group(1, 1, 3, A, B) + group(2, 4, 6, A), [], []),
        (LIBRARY, group(1, 2, 3, A, B), [], [LEFT_OUT]),
        (LIBRARY, group(1, 1, 3, A, B) + group(2, 5, 6, A), [], [LEFT_OUT]),
        # planned
        (LIBRARY, group(1, 1, 3, A, B) + group(2, 3, 6, A, at=104), [hit("scale", 103)], [AGAIN]),
        (LIBRARY, group(1, 1, 3, A, B) + group(2, 3, 6, A, at=104), [hit("drain", 103)], [AGAIN]),
        # a loss
        (LIBRARY, group(1, 1, 3, A, B) + group(2, 3, 6, A, at=106), [hit("kill-container", 103)], []),
        (LIBRARY, group(1, 1, 3, A, B) + group(2, 2, 6, A, at=106), [hit("kill-container", 103)], [AGAIN]),
        (LIBRARY, group(1, 1, 3, A, B) + group(2, 2, 6, C, B2, at=106), [hit("kill-container", 103)], []),
        (LIBRARY, group(1, 1, 3, A, B) + group(2, 3, 6, A, at=106), [hit("kill-container", 103, job="other")], [AGAIN]),
        (LIBRARY, group(1, 1, 3, A, B) + group(2, 3, 6, A, at=106), [hit("kill-container", 20)], [AGAIN]),
        # the lost worker was a step ahead: its peers never got its last messages
        (LIBRARY, group(1, 1, 3, A, B) + group(1, 4, 4, C) + group(2, 3, 6, A, B, at=106), [hit("cut-node", 103)], []),
        (LIBRARY, group(1, 1, 3, A, B) + group(1, 4, 4, C) + group(2, 2, 6, A, B, at=106), [hit("cut-node", 103)], [AGAIN]),
        (LIBRARY, group(1, 1, 3, A, B) + group(1, 4, 4, C) + group(2, 3, 6, A, C, at=106), [hit("cut-node", 103)], [AGAIN]),
        (
            LIBRARY,
            group(1, 1, 3, A) + group(1, 4, 4, C) + group(2, 3, 6, A, C, at=106),
            [hit("kill-container", 103, 103, C)],
            [],
        ),
        (
            LIBRARY,
            group(1, 1, 3, A) + group(1, 4, 4, C) + group(2, 3, 6, A, C, at=106),
            [hit("kill-container", 103, 103, A)],
            [AGAIN],
        ),
        # of shards, one worker may be lost
        (SHARDED, group(1, 1, 3, A, B, C) + group(2, 2, 6, A, B, at=106), [hit("delete-pod-now", 103)], []),
        (SHARDED, group(1, 1, 3, A, B, C) + group(2, 1, 6, A, B, at=106), [hit("delete-pod-now", 103)], [AGAIN]),
        (SHARDED, group(1, 1, 3, A, B, C) + group(2, 1, 6, A, at=106), [hit("delete-pod-now", 103)], []),
        (SHARDED, group(1, 1, 3, A, B, C) + group(2, 3, 6, A, at=106), [hit("scale", 103)], [AGAIN]),
        # a planned change while no operator could plan it
        (
            LIBRARY,
            group(1, 1, 3, A, B) + group(2, 3, 6, A, at=112),
            [hit("delete-pod", 99), hit("kill-operators", 98, job="")],
            [],
        ),
        # a job that is stopped while its checkpoint folder takes no writes
        (
            LIBRARY,
            group(1, 1, 4, A, B) + group(2, 2, 6, C, B2, at=112),
            [hit("refuse-writes", 102, 108), hit("suspend", 104)],
            [],
        ),
        (
            LIBRARY,
            group(1, 1, 4, A, B) + group(2, 2, 6, C, B2, at=112),
            [hit("refuse-writes", 102, 103), hit("suspend", 104)],
            [AGAIN],
        ),
        (
            LIBRARY,
            group(1, 1, 4, A, B) + group(2, 3, 6, A, at=112),
            [hit("refuse-writes", 102, 108), hit("scale", 104)],
            [AGAIN],
        ),
        # what is told late by a group that is no more
        (LIBRARY, group(1, 1, 3, A, B) + group(3, 4, 6, A) + group(2, 3, 3, B, at=140), [hit("pause-node", 103, 139)], []),
        # a group on a node that is cut off trains beside its successor
        (PLAIN, group(1, 1, 40, A) + group(2, 10, 60, B, at=120), [hit("cut-node", 119, 146)], []),
        (PLAIN, group(1, 1, 40, A) + group(2, 8, 60, B, at=120), [hit("cut-node", 119, 146)], [AGAIN]),
        (PLAIN, group(1, 1, 40, A) + group(2, 10, 60, B, at=120), [hit("scale", 119)], [AGAIN]),
        (PLAIN, group(1, 1, 40, A) + group(2, 10, 60, B, at=120), [hit("cut-node", 10, 20)], [AGAIN]),
        (PLAIN, group(1, 1, 40, A) + group(2, 42, 60, B, at=142), [hit("cut-node", 119, 146)], [LEFT_OUT]),
        # plain scripts go on from their checkpoint
        (PLAIN, group(1, 1, 14, A, B) + group(2, 4, 20, A, at=120), [], []),
        (PLAIN, group(1, 1, 14, A, B) + group(2, 3, 20, A, at=120), [], [AGAIN]),
    ],
)
def test_repeated_and_left_out_steps(expected: Expected, steps: list[Step], hits: list[Hit], rules: list[str]) -> None:
    assert [violation.rule for violation in check_repeats(expected, steps, hits)] == rules


def test_a_planned_change_that_outlasts_the_grace_period_is_a_loss() -> None:
    steps, hits = group(1, 1, 3, A, B) + group(2, 3, 6, A, at=120), [hit("drain", 103)]
    assert [violation.rule for violation in check_repeats(LIBRARY, steps, hits, frozenset({C}))] == [AGAIN]
    assert not list(check_repeats(LIBRARY, steps, hits, frozenset({B})))
    steps = group(1, 1, 3, A, B) + group(2, 2, 6, A, at=120)
    assert [violation.rule for violation in check_repeats(LIBRARY, steps, hits, frozenset({B}))] == [AGAIN]


def sampled(number: int, group: int, epoch: int, *samples: int, rank: int = 0) -> Step:
    return Step(100.0 + number, A, rank, 1, number, group, epoch, samples)


def epochs(*changed: Step) -> list[Step]:
    """Two epochs of six samples, two a step; steps may be replaced by their number, or added."""
    whole = {n: sampled(n, 1, (n - 1) // 3, 2 * ((n - 1) % 3), 2 * ((n - 1) % 3) + 1) for n in range(1, 7)}
    for step in changed:
        whole.pop(step.number, None)
    return [*whole.values(), *changed]


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        (epochs(), 0),
        (epochs(sampled(2, 1, 0, 2), sampled(2, 1, 0, 3, rank=1)), 0),
        (epochs(sampled(2, 1, 0, 2, 3), sampled(2, 2, 0, 2, 3)), 0),
        (epochs(sampled(2, 1, 0, 2, 3), sampled(2, 2, 0, 2)), 1),
        (epochs(sampled(2, 1, 0, 2, 3), sampled(2, 1, 0, 3, rank=1)), 1),
        (epochs(sampled(5, 1, 1, 0, 1)), 1),
    ],
    ids=["whole", "shared by ranks", "done again", "done again in part", "twice", "another's"],
)
def test_samples(steps: list[Step], broken: int) -> None:
    assert len(list(check_samples(LIBRARY, steps))) == broken


@pytest.mark.parametrize(
    ("last", "parameters", "rules"),
    [
        (6, (1.0, 2.0 + 1e-9), []),
        (6, (1.0, 2.001), ["parameters of an undisturbed run"]),
        (5, (1.0, 2.0), ["every job trains to its end"]),
    ],
)
def test_the_end(last: int, parameters: tuple[float, ...], rules: list[str]) -> None:
    found = check_end(LIBRARY, group(1, 1, last, A), [Done(120, A, parameters)], (1.0, 2.0))
    assert [violation.rule for violation in found] == rules


@pytest.mark.parametrize(("since", "until", "seconds"), [(102, 103, 7), (111, 112, 1), (200, 210, 0)])
def test_the_longest_pause_is_that_of_rank_0(since: float, until: float, seconds: float) -> None:
    steps = group(1, 1, 3, A, B) + group(2, 4, 6, A, at=110)
    assert longest_pause(steps, since, until) == seconds


def test_processes_of_plain_scripts_are_told_apart_by_who_they_are() -> None:
    def line(pod: str, pid: int, step: int, **more: Any) -> dict[str, Any]:
        return {"what": "step", "at": 100.0 + step, "worker": pod, "pid": pid, "step": step, "RANK": 0, "WORLD_SIZE": 2, **more}

    done = {"what": "done", "at": 110.0, "worker": A, "pid": 8, "parameters": [1.0]}
    steps, ends = read_training([line(A, 7, 1), line(A, 8, 1), line(A, 7, 2), line(B, 8, 3), {"what": "began"}, done])
    assert [step.group for step in steps] == [1, 2, 1, 3]
    assert ends == [Done(110.0, A, (1.0,))]


def test_groups_of_one_generation_are_told_apart_by_their_ranks() -> None:
    """The first of two groups of generation 8 could not claim it: its folder took no writes, and no member outlived it."""

    def line(what: str, pod: str, generation: int, step: int) -> dict[str, Any]:
        rank = int("-1-" in pod)
        at = 100.0 + len(lines)
        return {"what": what, "at": at, "worker": pod, "pid": 7, "generation": generation, "step": step, "RANK": rank}

    lines: list[dict[str, Any]] = []
    for generation, begin, pods in ((7, 0, (A, B)), (8, 2, (A, B)), (8, 2, (A2, B2)), (9, 4, (A2, B2))):
        lines += [line("restored", pod, generation, begin) for pod in pods]
        lines += [line("step", pod, generation, step) for step in (begin + 1, begin + 2) for pod in pods]
    steps, _ = read_training(lines)
    assert [(step.group, step.pod) for step in steps[::2]] == [
        (n, pod) for n, pod in enumerate((A, A, A2, A2), 1) for _ in (1, 2)
    ]
    assert not list(check_groups(LIBRARY, steps))
