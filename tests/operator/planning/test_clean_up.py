"""What is deleted of a job that has ended, and when."""

import pytest
from elastic_pytorch_operator.model.actions import DeleteJob
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.plan import EXIT_SECONDS, clean_up

from tests.operator.builders import (
    NOW,
    a_dead_pod,
    a_job,
    a_pending_pod,
    a_pod,
    an_agent,
    observed,
)

SEEN = observed(
    [a_pod(0), a_dead_pod(1), a_pending_pod(2), a_pod(3, deleting=True)], [an_agent("w0")]
)


def cleaned(policy: str, ended_at: float, seen: Observed = SEEN) -> list[str]:
    actions, _ = clean_up(a_job(cleanPodPolicy=policy), seen, ended_at)
    return [getattr(action, "name", type(action).__name__) for action in actions]


@pytest.mark.parametrize(
    ("policy", "at_once", "later"),
    [
        ("Running", ["w2"], ["w0", "w2"]),
        ("All", ["w1", "w2"], ["w0", "w1", "w2"]),
        ("None", ["w2"], ["w2"]),
    ],
)
def test_pods(policy: str, at_once: list[str], later: list[str]) -> None:
    assert cleaned(policy, NOW) == at_once
    assert cleaned(policy, NOW - EXIT_SECONDS) == later


@pytest.mark.parametrize(("policy", "gone"), [("Running", ["w0"]), ("All", ["w0"]), ("None", [])])
def test_pod_that_only_its_sidecar_keeps_running_gives_its_node_back(
    policy: str, gone: list[str]
) -> None:
    lingering = a_pod(0, started=False, exit_code=0, sidecar_runs=True)
    assert cleaned(policy, NOW, observed([lingering])) == gone


@pytest.mark.parametrize(
    ("ttl", "gone"), [(0, True), (59, True), (60, True), (61, False), (None, False)]
)
def test_job_goes_when_its_time_to_live_is_over(ttl: int | None, gone: bool) -> None:
    job = a_job(ttlSecondsAfterFinished=ttl, status={"completionTime": "2025-12-31T23:59:00Z"})
    actions, recheck = clean_up(job, observed(), NOW)
    assert (actions == [DeleteJob()]) == gone
    assert recheck == (NOW + 1 if ttl == 61 else None)


def test_looks_again_when_agents_should_have_exited() -> None:
    assert clean_up(a_job(), SEEN, NOW - 4)[1] == NOW - 4 + EXIT_SECONDS
