"""What is a failure, what is a symptom, and which is the root cause."""

from dataclasses import replace

import pytest
from elastic_pytorch_operator.failures import collect_failures, is_foreign, is_symptom, root_cause
from elastic_pytorch_operator.observed import AgentView, PodView
from operator_builders import NOW, a_dead_pod, a_failure, a_pod, a_round, an_agent, observed


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.244.1.5]:41231",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Read error [10.0.0.2]:1: Connection reset by peer",
        "RuntimeError: Gloo connectFullMesh failed with SO_ERROR: Connection refused",
        "torch.distributed.DistBackendError: NCCL error in: ncclRemoteError: remote error",
        "torch.distributed.DistNetworkError: The client socket has timed out",
        "BrokenPipeError: Broken pipe",
    ],
)
def test_peer_errors_are_symptoms(message: str) -> None:
    assert is_symptom(a_failure(message))


@pytest.mark.parametrize("message", ["ValueError: boom", "ConnectionError: no database", "AssertionError", "MemoryError: "])
def test_errors_of_the_script_are_not(message: str) -> None:
    assert not is_symptom(a_failure(message))


def test_signals() -> None:
    assert not is_symptom(a_failure("killed", exit_code=-11, signal="SIGSEGV"))
    assert not is_symptom(a_failure("killed", exit_code=-9, signal="SIGKILL"))
    assert is_symptom(a_failure("stopped", exit_code=-15, signal="SIGTERM"))


def test_killed_from_outside_or_by_the_kernel() -> None:
    assert is_foreign(a_failure("killed by SIGKILL", exit_code=-9, signal="SIGKILL"))
    assert not is_foreign(a_failure("the container is out of memory", exit_code=-9, signal="SIGKILL", exception="OutOfMemory"))
    assert not is_foreign(a_failure("killed by SIGSEGV", exit_code=-11, signal="SIGSEGV"))


def test_root_cause_is_the_earliest_that_is_not_a_symptom() -> None:
    peer = a_failure("RuntimeError: gloo: Connection closed by peer", failed_at=NOW - 3)
    mine, late = a_failure("ValueError: boom", failed_at=NOW - 2), a_failure("KeyError: 1", failed_at=NOW - 1)
    agents = [an_agent(worker, "failed", failure=failure) for worker, failure in (("w0", peer), ("w1", late), ("w2", mine))]
    cause = root_cause(collect_failures(observed(agents=agents, round=a_round(0, 1, 2))))
    assert cause is not None
    assert (cause.worker, cause.message) == ("w2", "ValueError: boom")


def test_failures_of_an_earlier_round_are_over() -> None:
    late = an_agent("w0", "failed", round_=1, failure=a_failure())
    assert collect_failures(observed(agents=[late], round=a_round(0, number=2))) == ()


@pytest.mark.parametrize(
    ("pod", "counted"),
    [
        (a_dead_pod(0, exit_code=1), True),
        (a_dead_pod(0, exit_code=137, exit_reason="OOMKilled"), True),
        (a_dead_pod(0, exit_code=137), False),
        (a_dead_pod(0, exit_code=143), False),
        (a_dead_pod(0, exit_code=0, exit_reason="Completed"), False),
        (a_dead_pod(0, exit_reason="Evicted"), False),
        (a_dead_pod(0, deleting=True), False),
        (a_dead_pod(0, seen_dead_at_start=True), False),
    ],
)
def test_pods_that_died(pod: object, counted: bool) -> None:
    assert len(collect_failures(observed([pod]))) == int(counted)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("situation", "pods", "other", "count"),
    [
        ("all are there and have spoken", [a_pod(0), a_pod(1)], an_agent("w1"), 1),
        ("both have failed", [a_pod(0), a_pod(1)], an_agent("w1", "failed"), 2),
        ("its peer may be dead", [a_pod(0), a_pod(1)], an_agent("w1", heard_at=NOW - 9), 0),
        ("its peer has not been heard", [a_pod(0), a_pod(1)], None, 0),
        ("its peer is being deleted", [a_pod(0), a_pod(1, deleting=True)], an_agent("w1"), 0),
        ("its peer leaves", [a_pod(0), a_pod(1)], an_agent("w1", "leaving"), 0),
        ("its peer is gone", [a_pod(0)], None, 0),
        ("its peer knows why", [a_pod(0), a_pod(1)], an_agent("w1", "failed", failure=a_failure()), 1),
    ],
)
def test_failure_that_nobody_explains_counts_unless_somebody_was_lost(
    situation: str, pods: list[PodView], other: AgentView | None, count: int
) -> None:
    agents = [an_agent("w0", "failed", state_since=NOW - 5), *([other] if other else [])]
    found = collect_failures(observed(pods, agents, round=a_round(0, 1)))
    assert len(found) == count, situation


def test_such_a_failure_is_not_the_scripts_if_a_new_operator_misses_somebody() -> None:
    rebuilt = replace(a_round(0, 1), size=3)
    agents = [an_agent(worker, "failed", state_since=NOW - 5) for worker in ("w0", "w1")]
    assert not collect_failures(observed([a_pod(0), a_pod(1)], agents, round=rebuilt))
