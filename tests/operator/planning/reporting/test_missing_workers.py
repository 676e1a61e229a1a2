"""Why workers are missing: one clause a cause."""

from typing import Any

import pytest
from elastic_pytorch_operator.planning.failures.start_backoff import FailedStarts
from elastic_pytorch_operator.planning.reporting.missing_workers import explain_shortage

from tests.operator.builders import a_dead_pod, a_pending_pod, a_pod

IMAGE = "ErrImagePull: no such image"


@pytest.mark.parametrize(
    ("pods", "told"),
    [
        pytest.param([], "", id="no pod"),
        pytest.param([a_pod(0, name="speaks")], "", id="its agent speaks"),
        pytest.param([a_dead_pod(0), a_pod(1, deleting=True)], "", id="ended, being deleted"),
        pytest.param([a_pod(0)], "1 pod: its agent has not reported yet", id="its agent is silent"),
        pytest.param([a_pending_pod(0), a_pending_pod(1)], "2 pods: waiting to be scheduled", id="no node"),
        pytest.param([a_pod(0, started=False)], "1 pod: starting", id="its container does not run yet"),
        pytest.param([a_pod(0, started=False, waiting=IMAGE)], f"1 pod: {IMAGE}", id="the kubelet says why"),
        pytest.param(
            [a_pod(0), a_pending_pod(1), a_pending_pod(2), a_pod(3, started=False)],
            "2 pods: waiting to be scheduled; 1 pod: its agent has not reported yet; 1 pod: starting",
            id="the most frequent first",
        ),
        pytest.param(
            [*(a_pending_pod(i) for i in range(3)), *(a_pod(i, started=False, waiting=f"Error {i:02d}") for i in range(20))],
            "; ".join(
                ["3 pods: waiting to be scheduled", *(f"1 pod: Error {i:02d}" for i in range(7)), "13 pods: other reasons"]
            ),
            id="no more than a few",
        ),
    ],
)
def test_causes(pods: list[Any], told: str) -> None:
    assert explain_shortage(pods, {"speaks"}) == told


def test_refusal_stands_last() -> None:
    refusal = "the API server refuses: exceeded quota"
    assert explain_shortage([a_pending_pod(0)], (), refusal) == f"1 pod: waiting to be scheduled; {refusal}"
    assert explain_shortage([], (), refusal) == refusal


def test_failed_start_is_told_until_there_is_another_pod() -> None:
    failed = FailedStarts(newest={0: a_dead_pod(0, exit_code=127)})
    told = "1 pod: has ended with exit code 127 (Error) on node node-0 before it could join; tried again after a pause"
    assert explain_shortage([a_dead_pod(0, exit_code=127)], (), starts=failed) == told
    assert (
        explain_shortage([a_dead_pod(0, exit_code=127), a_pending_pod(0)], (), starts=failed)
        == "1 pod: waiting to be scheduled"
    )
