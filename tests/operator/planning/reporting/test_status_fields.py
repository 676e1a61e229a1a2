"""The fields of a job's status besides its state, counts and conditions."""

from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.planning.completion import Ending
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.reporting.interruption import Interruption, Interruptions

from tests.operator.builders import NOW, TIME, a_dead_pod, a_pending_pod, a_pod, a_round, an_agent, observed
from tests.operator.planning.reporting.test_status import ALL, BOOM, NONE, SUSPENDED, status_of
from tests.situations import situations


@situations(
    "pod, agent, member, worker",
    {
        "trains": (a_pod(0), an_agent("w0"), True, {"rank": 0, "node": "node-0", "state": "Running"}),
        "restarts": (a_pod(0), an_agent("w0", "failed"), True, {"rank": 0, "node": "node-0", "state": "Running"}),
        "done": (a_pod(0), an_agent("w0", "succeeded"), True, {"rank": 0, "node": "node-0", "state": "Succeeded"}),
        "ready": (a_pod(0), an_agent("w0", "ready", 0), False, {"node": "node-0", "state": "Ready"}),
        "leaves": (a_pod(0), an_agent("w0", "leaving"), True, {"rank": 0, "node": "node-0", "state": "Leaving"}),
        "has no node": (a_pending_pod(0), None, False, {"state": "Starting"}),
        "its agent has not spoken": (a_pod(0), None, False, {"node": "node-0", "state": "Starting"}),
        "lost": (a_dead_pod(0), None, True, {"rank": 0, "node": "node-0", "state": "Lost"}),
        "has exited with 0": (
            a_dead_pod(0, exit_code=0),
            an_agent("w0", "succeeded"),
            True,
            {"rank": 0, "node": "node-0", "state": "Succeeded"},
        ),
        "has exited with 0, which its agent did not call success": (
            a_dead_pod(0, exit_code=0),
            an_agent("w0"),
            True,
            {"rank": 0, "node": "node-0", "state": "Lost"},
        ),
    },
)
def test_worker(pod: Any, agent: Any, member: bool, worker: dict[str, Any]) -> None:
    seen = observed([pod], [agent] if agent else [], round=a_round(0) if member else None)
    assert status_of(seen)["workers"] == [{"name": "w0", "index": 0, **worker}]


def test_stock_torchrun_gives_the_ranks() -> None:
    assert "rank" not in status_of(ALL, {"rendezvous": {"backend": "c10d"}})["workers"][0]


def test_workers_are_in_the_order_of_their_indices_without_those_whose_pods_are_gone() -> None:
    seen = observed([a_pod(2), a_pod(0)], [an_agent("w2"), an_agent("w0")], round=a_round(0, 1, 2))
    assert [worker["name"] for worker in status_of(seen)["workers"]] == ["w0", "w2"]


ENDED = Interruption(5, "WorkerFailed", NOW, seconds=1.234, steps_lost=3, time=TIME, size=1)
LOST = {"time": TIME, "round": 4, "replicas": 2, "cause": "WorkerLost", "seconds": "1.00"}
OLD = {
    "round": 4,
    "startTime": "2025-12-31T00:00:00Z",
    "progress": {"summary": "7", "step": 7},
    "history": [LOST],
    "operatorState": {"lastGrowthTime": "2025-12-31T00:00:01Z"},
    "rootCause": {"worker": "w9"},
}


def test_what_is_known_from_before_stays() -> None:
    status = status_of(NONE, {"status": OLD})
    assert {name: status[name] for name in OLD} == OLD


@situations(
    "said, field, value",
    {
        "the group grows": ({"grown": True}, "operatorState", {"lastGrowthTime": TIME}),
        "all workers are replaced": ({"budget": Budget(group_restarts=2)}, "groupRestarts", 2),
        "failures since the last progress": ({"budget": Budget(failures=2, total=5)}, "failures", 2),
        "failures since the job began": ({"budget": Budget(failures=2, total=5)}, "totalFailures", 5),
        "an interruption is over": (
            {"interruptions": Interruptions(last=ENDED)},
            "history",
            [
                LOST,
                {"time": TIME, "round": 5, "replicas": 1, "cause": "WorkerFailed", "seconds": "1.23", "stepsLost": 3},
            ],
        ),
        "it goes on": ({"interruptions": Interruptions(Interruption(5, "WorkerFailed", NOW))}, "history", [LOST]),
        "it is in it, and an older resource definition has dropped fields": (
            {"interruptions": Interruptions(last=replace(ENDED, round=4))},
            "history",
            [LOST],
        ),
        "the last failure": ({"budget": Budget(last=BOOM)}, "rootCause", BOOM.as_status()),
        "the end": ({"ending": Ending(False, "R", "m")}, "completionTime", TIME),
        "the cause of the end": ({"ending": Ending(False, "R", "m", BOOM)}, "rootCause", BOOM.as_status()),
    },
)
def test_field(said: dict[str, Any], field: str, value: object) -> None:
    assert status_of(ALL, {"status": OLD}, **said)[field] == value


def test_suspended_job_has_no_time_of_its_start() -> None:
    assert "startTime" not in status_of(NONE, {**SUSPENDED, "status": OLD})
