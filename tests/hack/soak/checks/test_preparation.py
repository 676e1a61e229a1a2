"""What a failure in a set-up may change, and where a spare must be."""

import pytest
from soak.checks.preparation import check_set_up_failures, check_spares
from soak.checks.training import Expected
from soak.timeline import Hit, SetUpFailure, StatusSeen, Step

A, B, C = "job-worker-0-aaaaa", "job-worker-1-bbbbb", "job-worker-2-ccccc"
ELASTIC = Expected("job", minimum=1, maximum=3, processes=1, total=9, commits=True)
WITH_SPARE = Expected("job", minimum=2, maximum=2, processes=1, total=9, commits=True, spares=1)
FAILURE = SetUpFailure(102.8, C, "leave")
GROUP, COUNT = "a failed set-up changes no group", "a failed set-up does not count"


def group(number: int, first: int, *pods: str) -> list[Step]:
    """Three steps, one a second: step n at second 100 + n."""
    return [Step(100.0 + n, pod, rank, len(pods), n, number) for n in range(first, first + 3) for rank, pod in enumerate(pods)]


def hit(kind: str, at: float, *pods: str, job: str = "job") -> Hit:
    return Hit(at, at, kind, kind, frozenset({job}), frozenset(pods))


def status(at: float, failures: int = 0, *spares: str) -> StatusSeen:
    return StatusSeen(at, "job", "Running", 2, failures, frozenset(spares))


@pytest.mark.parametrize(
    ("steps", "hits", "rules"),
    [
        (group(1, 1, A, B), [], []),
        (group(1, 1, A) + group(2, 4, A, B), [], []),
        (group(1, 1, A, B) + group(2, 4, A, B), [], [GROUP]),
        (group(1, 1, A, B) + group(2, 4, A), [], [GROUP]),
        (group(1, 1, A, B) + group(2, 4, A), [hit("kill-container", 103.0, B)], []),
        (group(1, 1, A, B) + group(2, 4, A), [hit("kill-container", 103.0, B, job="other")], [GROUP]),
        (group(1, 11, A, B) + group(2, 14, A), [], []),  # long after the failure
    ],
)
def test_groups_around_a_failure(steps: list[Step], hits: list[Hit], rules: list[str]) -> None:
    assert [found.rule for found in check_set_up_failures(ELASTIC, steps, [FAILURE], [], hits)] == rules
    assert not list(check_set_up_failures(ELASTIC, steps, [], [], [])), "nothing has failed"


@pytest.mark.parametrize(
    ("statuses", "hits", "rules"),
    [
        ([status(101), status(103, 0, C)], [], []),
        ([status(101), status(104, 1)], [], [COUNT]),
        ([status(101), status(102, 1)], [], []),  # before it
        ([status(101), status(120, 1)], [], []),  # long after it
        ([status(101), status(104, 1)], [hit("kill-process", 103)], []),
    ],
)
def test_status_after_a_failure(statuses: list[StatusSeen], hits: list[Hit], rules: list[str]) -> None:
    assert [found.rule for found in check_set_up_failures(ELASTIC, [], [FAILURE], statuses, hits)] == rules


@pytest.mark.parametrize(
    ("last", "statuses", "hits", "broken"),
    [
        ((A, C), [status(100, 0, C)], [hit("kill-container", 103, B)], 0),
        ((A, "other"), [status(100, 0, C)], [hit("kill-container", 103, B)], 1),
        ((A, B), [status(100, 0, C)], [hit("kill-process", 103)], 1),
        ((A, "other"), [status(100)], [hit("kill-container", 103, B)], 0),  # no spare was ready
        ((A, "other"), [status(100, 0, C), status(102)], [hit("kill-container", 103, B)], 0),  # it had just been lost
        ((A, "other"), [status(102, 0, C)], [hit("kill-container", 103, B)], 0),  # it had just become ready
        ((A, "other"), [status(100, 0, C)], [hit("kill-container", 103, B), hit("delete-pod", 103, C)], 0),
        ((A, "other"), [status(100, 0, C)], [hit("kill-container", 103, C)], 0),
        ((A, "other"), [status(100, 0, C)], [hit("kill-node", 103)], 0),  # which may have had both
    ],
)
def test_spares(last: tuple[str, str], statuses: list[StatusSeen], hits: list[Hit], broken: int) -> None:
    steps = group(1, 1, A, B) + group(2, 4, *last)
    assert len(list(check_spares(WITH_SPARE, steps, statuses, hits))) == broken
    assert not list(check_spares(ELASTIC, steps, statuses, hits))
