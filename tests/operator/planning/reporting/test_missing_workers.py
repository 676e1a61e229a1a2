from collections.abc import Container, Sequence
from typing import Any

from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.planning.failures.start_backoff import NONE_FAILED, FailedStarts
from elastic_pytorch_operator.planning.reporting.missing_workers import explain_shortage, may_train
from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness

from tests.operator.builders import NOW, a_dead_pod, a_pending_pod, a_pod, condition, observed
from tests.operator.planning.reporting.test_status import case, status_of
from tests.situations import situations

IMAGE = "ErrImagePull: no such image"


def told_of(
    pods: Sequence[PodView],
    speaking: Container[str] = (),
    starts: FailedStarts = NONE_FAILED,
    preparing: Container[str] = (),
) -> str:
    return explain_shortage(pods, speaking, starts, preparing, ())


@situations(
    "pods, told",
    {
        "no pod": ([], ""),
        "its agent speaks": ([a_pod(0, name="speaks")], ""),
        "ended, being deleted": ([a_dead_pod(0), a_pod(1, deleting=True)], ""),
        "its agent is silent": ([a_pod(0)], "1 pod: its agent has not reported yet"),
        "no node": ([a_pending_pod(0), a_pending_pod(1)], "2 pods: waiting to be scheduled"),
        "its container does not run yet": ([a_pod(0, started=False)], "1 pod: starting"),
        "the kubelet says why": ([a_pod(0, started=False, waiting=IMAGE)], f"1 pod: {IMAGE}"),
        "the most frequent first": (
            [a_pod(0), a_pending_pod(1), a_pending_pod(2), a_pod(3, started=False)],
            "2 pods: waiting to be scheduled; 1 pod: its agent has not reported yet; 1 pod: "
            "starting",
        ),
        "no more than a few": (
            [
                *(a_pending_pod(i) for i in range(3)),
                *(a_pod(i, started=False, waiting=f"Error {i:02d}") for i in range(20)),
            ],
            "; ".join(
                [
                    "3 pods: waiting to be scheduled",
                    *(f"1 pod: Error {i:02d}" for i in range(7)),
                    "13 pods: other reasons",
                ]
            ),
        ),
    },
)
def test_causes(pods: list[Any], told: str) -> None:
    assert told_of(pods, {"speaks"}) == told


def test_script_that_sets_itself_up_is_told_of() -> None:
    told = told_of([a_pod(0), a_pod(1)], {"w0", "w1"}, preparing={"w1"})
    assert told == "1 pod: its script runs its set-up (spec.prepare)"


def test_failed_start_is_told_until_there_is_another_pod() -> None:
    failed = FailedStarts(newest={0: a_dead_pod(0, exit_code=127)})
    told = (
        "1 pod: has ended with exit code 127 (Error) on node node-0; "
        "the operator will retry after a delay"
    )
    dead = a_dead_pod(0, exit_code=127)
    assert told_of([dead], starts=failed) == told
    assert told_of([dead, a_pending_pod(0)], starts=failed) == "1 pod: waiting to be scheduled"


UNHEARD = Candidate("w0", 0, "10.0.0.1", Liveness.STARTING, unheard=True)
STARTING = Candidate("w0", 0, "10.0.0.1", Liveness.STARTING)
TRAINED = {"state": "Running", "worldSize": 2}
BOTH = frozenset({"w0", "w1"})


@situations(
    "state, candidates, size, trains",
    {
        "all unheard": ("Running", [UNHEARD], 0, True),
        "and a newcomer": ("Resizing", [UNHEARD, STARTING], 0, True),
        "others are heard": ("Running", [UNHEARD], 2, False),
        "only a newcomer": ("Running", [STARTING], 0, False),
        "it did not train": ("Pending", [UNHEARD], 0, False),
        "it was suspended": ("Suspended", [UNHEARD], 0, False),
    },
)
def test_group_that_trained_may_train_still(
    state: str, candidates: list[Candidate], size: int, *, trains: bool
) -> None:
    assert may_train({"state": state}, candidates, size) is trains


def test_status_keeps_what_was_last_known_of_it() -> None:
    seen = observed(
        [a_pod(0), a_pod(1)], heard_before=BOTH, listening_since=NOW - 11, last_heard_at=NOW
    )
    status = status_of(case(seen, {"status": TRAINED}))
    assert (status["state"], status["worldSize"], status["readyReplicas"]) == ("Running", 2, 0)
    assert [worker["state"] for worker in status["workers"]] == ["Silent", "Silent"]
    running = condition(status, "Running")
    assert (running["status"], running["reason"]) == ("Unknown", "WorkersUnheard")
    assert running["message"].startswith(
        "2 workers have not reported since a replica of the operator began to lead"
    )


def test_group_that_is_given_up_does_not_train() -> None:
    seen = observed(
        [a_pod(0), a_pod(1)], heard_before=BOTH, listening_since=NOW - 121, last_heard_at=NOW
    )
    status = status_of(case(seen, {"status": TRAINED}))
    assert (status["state"], status["worldSize"]) == ("Pending", 0)
