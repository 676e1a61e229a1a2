"""The fields of a job's status besides its state, counts and conditions."""

from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.model.failure import Ending
from elastic_pytorch_operator.model.observed import AgentView, PodView
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.reporting.interruption import Interruption, Interruptions
from elastic_pytorch_operator.planning.reporting.status import describe_progress

from tests.operator.builders import (
    NOW,
    TIME,
    Progress,
    a_dead_pod,
    a_pending_pod,
    a_pod,
    a_round,
    an_agent,
    observed,
)
from tests.operator.planning.reporting.test_status import (
    ALL,
    BOOM,
    NONE,
    SUSPENDED,
    case,
    status_of,
)
from tests.situations import situations


@situations(
    "pod, agent, expected",
    {
        "trains": (a_pod(0), an_agent("w0"), "Running rank 0 node-0"),
        "restarts": (a_pod(0), an_agent("w0", "failed"), "Running rank 0 node-0"),
        "done": (a_pod(0), an_agent("w0", "succeeded"), "Succeeded rank 0 node-0"),
        "ready": (a_pod(0), an_agent("w0", "ready", 0), "Ready node-0"),
        "leaves": (a_pod(0), an_agent("w0", "leaving"), "Leaving rank 0 node-0"),
        "has no node": (a_pending_pod(0), None, "Starting"),
        "its agent has not spoken": (a_pod(0), None, "Starting node-0"),
        "lost": (a_dead_pod(0), None, "Lost rank 0 node-0"),
        "has exited with 0": (
            a_dead_pod(0, exit_code=0),
            an_agent("w0", "succeeded"),
            "Succeeded rank 0 node-0",
        ),
        "has exited with 0, which its agent did not call success": (
            a_dead_pod(0, exit_code=0),
            an_agent("w0"),
            "Lost rank 0 node-0",
        ),
    },
)
def test_worker(pod: PodView, agent: AgentView | None, expected: str) -> None:
    state, *rest = expected.split()
    member = "rank" in rest
    seen = observed([pod], [agent] if agent else [], round=a_round(0) if member else None)
    told = {"state": state} | ({"rank": 0} if member else {})
    told |= {"node": "node-0"} if "node-0" in rest else {}
    assert status_of(case(seen))["workers"] == [{"name": "w0", "index": 0, **told}]


def test_stock_torchrun_gives_the_ranks() -> None:
    assert "rank" not in status_of(case(ALL, {"rendezvous": {"backend": "c10d"}}))["workers"][0]


def test_workers_are_in_the_order_of_their_indices_without_those_whose_pods_are_gone() -> None:
    seen = observed([a_pod(2), a_pod(0)], [an_agent("w2"), an_agent("w0")], round=a_round(0, 1, 2))
    assert [worker["name"] for worker in status_of(case(seen))["workers"]] == ["w0", "w2"]


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
    status = status_of(case(NONE, {"status": OLD}))
    assert {name: status[name] for name in OLD} == OLD


@situations(
    "said, field, value",
    {
        "the group grows": ({"grown": True}, "operatorState", {"lastGrowthTime": TIME}),
        "all workers are replaced": ({"budget": Budget(group_restarts=2)}, "groupRestarts", 2),
        "failures since the last progress": (
            {"budget": Budget(failures=2, total=5)},
            "failures",
            2,
        ),
        "failures since the job began": (
            {"budget": Budget(failures=2, total=5)},
            "totalFailures",
            5,
        ),
        "an interruption is over": (
            {"interruptions": Interruptions(last=ENDED)},
            "history",
            [LOST, ENDED.as_status()],
        ),
        "it goes on": (
            {"interruptions": Interruptions(Interruption(5, "WorkerFailed", NOW))},
            "history",
            [LOST],
        ),
        "it is in it, and an older resource definition has dropped fields": (
            {"interruptions": Interruptions(last=replace(ENDED, round=4))},
            "history",
            [LOST],
        ),
        "the last failure": ({"budget": Budget(last=BOOM)}, "rootCause", BOOM.as_status()),
        "the end": ({"ending": Ending(False, "R", "m")}, "completionTime", TIME),
        "the cause of the end": (
            {"ending": Ending(False, "R", "m", BOOM)},
            "rootCause",
            BOOM.as_status(),
        ),
    },
)
def test_field(said: dict[str, Any], field: str, value: object) -> None:
    assert status_of(case(ALL, {"status": OLD}, **said))[field] == value


def test_suspended_job_has_no_time_of_its_start() -> None:
    assert "startTime" not in status_of(case(NONE, {**SUSPENDED, "status": OLD}))


OLD_PROGRESS = {
    "summary": "7/9",
    "step": 7,
    "total": 9,
    "stepsPerSecond": "1",
    "metrics": {"f1": "0.5"},
}


@situations(
    "agents, progress",
    {
        "no report": ([an_agent("w0")], {}),
        "a step": ([an_agent("w0", progress=Progress(step=7))], {"summary": "7", "step": 7}),
        "the newest step, the newest checkpoint, the highest speed": (
            [
                an_agent(
                    "w0",
                    progress=Progress(step=7, total=80, loss=1.23456, checkpoint_step=5),
                    steps_per_second=1.57,
                ),
                an_agent("w1", progress=Progress(step=6, checkpoint_step=6), steps_per_second=1.4),
            ],
            {
                "summary": "7/80",
                "step": 7,
                "total": 80,
                "loss": "1.235",
                "stepsPerSecond": "1.57",
                "checkpointStep": 6,
            },
        ),
    },
)
def test_progress(agents: list[Any], progress: dict[str, Any]) -> None:
    assert describe_progress(agents, {}) == progress


def test_without_a_report_the_old_progress_stays() -> None:
    assert describe_progress([], OLD_PROGRESS) == OLD_PROGRESS


def metrics(
    *reports: tuple[int, dict[str, float]], old: dict[str, str] | None = None
) -> dict[str, str]:
    agents = [
        an_agent(f"w{n}", progress=Progress(step=step, metrics=tuple(m.items())))
        for n, (step, m) in enumerate(reports)
    ]
    found: dict[str, str] = describe_progress(agents, {"metrics": old or {}}).get("metrics", {})
    return found


def test_newest_metric_of_each_name_is_told_by_name() -> None:
    assert list(metrics((5, {"b": 1.0, "a": 0.123456789})).items()) == [
        ("a", "0.123457"),
        ("b", "1"),
    ]
    assert metrics((5, {"a": 1.0}), (6, {"a": 2.0})) == {"a": "2"}, "the rank that is ahead"
    assert metrics((5, {"a": 1.0}), (5, {"a": 2.0, "b": 3.0})) == {"a": "1", "b": "3"}, (
        "the first of equals"
    )
    assert metrics((5, {"a": 1e300}), (6, {})) == {"a": "1e+300"}
    assert metrics((5, {})) == {}


def test_metric_that_is_not_reported_again_after_a_change_of_the_group_stays() -> None:
    assert metrics((5, {"a": 1.0}), old={"a": "9", "b": "8"}) == {"a": "1", "b": "8"}
    reported, before = {f"m{n:02d}": 1.0 for n in range(15)}, {"x": "2", "y": "2"}
    assert metrics((5, reported), old=before) == {**dict.fromkeys(reported, "1"), "x": "2"}, (
        "sixteen at most"
    )
