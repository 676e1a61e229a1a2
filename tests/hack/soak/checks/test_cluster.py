"""Which ends of pods are explained, when a status is wrong, and what counts as a leak."""

import pytest
from soak.checks.cluster import check_growth, check_healthy_pods, check_operators, check_status, spread
from soak.timeline import Hit, PodSeen, Restart, StatusSeen, Step, Usage

POD = "job-worker-0-aaaaa"
JOB = frozenset({"job"})


@pytest.mark.parametrize(
    ("hits", "explained"),
    [
        ([], False),
        ([Hit(99, 99, "delete-pod", "", JOB, frozenset({POD}))], True),
        ([Hit(99, 99, "delete-pod", "", JOB, frozenset({"job-worker-1-bbbbb"}))], False),
        ([Hit(50, 90, "kill-node", "", frozenset(), node="n1")], True),
        ([Hit(50, 90, "kill-node", "", frozenset(), node="n2")], False),
        ([Hit(200, 210, "kill-node", "", frozenset(), node="n1")], False),
        ([Hit(99, 99, "scale", "", JOB)], True),
        ([Hit(99, 99, "scale", "", frozenset({"other"}))], False),
        ([Hit(95, 105, "suspend", "", JOB)], True),
        ([Hit(95, 105, "freeze-api", "")], False),
        ([Hit(95, 105, "kill-operators", "")], False),
    ],
)
def test_ends_of_pods(hits: list[Hit], explained: bool) -> None:
    ends = [PodSeen(100.0, "job", POD, "n1", "deleted"), PodSeen(101.0, "job", POD, "n1", "deleted")]
    found = list(check_healthy_pods(ends, hits, {"job": {POD}}, {}))
    assert len(found) == (not explained)
    assert not list(check_healthy_pods(ends, hits, {"job": set()}, {})), "it has not trained yet"
    assert not list(check_healthy_pods(ends, hits, {"job": {POD}}, {"job": 99.0})), "the training was over"


@pytest.mark.parametrize(
    ("hit", "explained"),
    [
        (Hit(95, 96, "kill-leader", "", pods=frozenset({"op-a"})), True),
        (Hit(95, 96, "kill-leader", "", pods=frozenset({"op-b"})), False),
        (Hit(5, 6, "kill-leader", "", pods=frozenset({"op-a"})), False),
        (Hit(95, 96, "kill-node", "", node="n1"), True),
        (Hit(95, 96, "kill-node", "", node="n2"), False),
        (Hit(95, 105, "freeze-api", ""), True),
        (Hit(95, 105, "stop-dns", ""), False),
        (Hit(95, 105, "drain", "", JOB, node="n1"), False),  # it evicts no operator
        (Hit(95, 105, "suspend", "", JOB), False),
    ],
)
def test_restarts_of_operators(hit: Hit, explained: bool) -> None:
    restarts = [Restart(100.0, "op-a", "n1", "its container ended with 1 (Error)")]
    assert len(list(check_operators(restarts, [hit]))) == (not explained)


def test_a_restart_without_any_fault_is_a_violation() -> None:
    [found] = check_operators([Restart(100.0, "op-a", "n1", "its container ended with 1 (Error)")], [])
    assert found.text == "op-a on n1: its container ended with 1 (Error)"


def steps(world: int, begin: float, end: float, group: int = 1) -> list[Step]:
    return [Step(at, POD, 0, world, int(at), group) for at in (begin, (begin + end) / 2, end)]


@pytest.mark.parametrize(
    ("seen", "hits", "wrong"),
    [
        ([StatusSeen(102, "job", "Running", 2)], [], 0),
        ([StatusSeen(102, "job", "Running", 3)], [], 1),
        ([StatusSeen(102, "job", "Running", 2), StatusSeen(199, "job", "Suspending", 0)], [], 0),  # it does its last step
        ([StatusSeen(102, "job", "Running", 2), StatusSeen(170, "job", "Suspending", 0)], [], 1),
        ([StatusSeen(102, "job", "Running", 3), StatusSeen(125, "job", "Running", 2)], [], 0),
        ([StatusSeen(102, "job", "Running", 3), StatusSeen(150, "job", "Running", 2)], [], 1),
        ([StatusSeen(102, "job", "Running", 3), StatusSeen(150, "job", "Running", 2)], [Hit(110, 140, "freeze-api", "")], 0),
        ([StatusSeen(102, "job", "Running", 3), StatusSeen(150, "job", "Running", 2)], [Hit(110, 140, "drain", "", JOB)], 1),
    ],
)
def test_status(seen: list[StatusSeen], hits: list[Hit], wrong: int) -> None:
    assert len(list(check_status("job", seen, steps(2, 100, 200), hits))) == wrong


def test_status_of_groups_that_soon_change_is_not_looked_at() -> None:
    assert not list(check_status("job", [StatusSeen(90, "job", "Running", 3)], steps(2, 100, 120), []))


def usages(*descriptors: int, memory_files: int = 0, role: str = "agent") -> list[Usage]:
    """Samples of one process, 20 s apart, the first when it has just begun."""
    return [Usage(20.0 * i, "n1/7", role, count, memory_files * i, 9, 50.0) for i, count in enumerate(descriptors)]


@pytest.mark.parametrize(
    ("samples", "leaks"),
    [
        (usages(5, 30, 30, 40, 41, 42, 40, 41, 40), 0),
        (usages(5, 30, 30, 40, 60, 80, 100, 120, 140), 1),
        (usages(5, 40, 40, 40, 40, 40, 40, 40, 40, memory_files=3), 1),
        (usages(5, 200), 0),
        (usages(12, 12, 12, 12, 12, 54, 54, 54, 54, role="operator"), 0),  # it leads now, and has all agents' connections
        (usages(12, 12, 12, 12, 60, 90, 130, 160, 200, role="operator"), 1),
    ],
)
def test_growth(samples: list[Usage], leaks: int) -> None:
    assert len(list(check_growth(samples))) == leaks


def test_spread() -> None:
    assert spread([5.0, 1.0, 3.0]) == (3.0, 5.0, 5.0)
    assert spread([float(n) for n in range(1, 21)]) == (10.5, 19.0, 20.0)
