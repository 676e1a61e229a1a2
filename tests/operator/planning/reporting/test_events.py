"""Which events a moment has.

What their notes say of rounds and interruptions, tests/plugin/test_operator_sentences.py reads.
"""

from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.model.failure import Ending, FailureRecord
from elastic_pytorch_operator.planning.reporting.events import News, record_events, record_refusals
from elastic_pytorch_operator.planning.reporting.interruption import Interruption
from elastic_pytorch_operator.spec.failure_rules import find_rule, parse_rules
from elastic_pytorch_operator.spec.job import Job

from tests.operator.builders import NOW, a_job, a_round, a_target, observed
from tests.operator.spec.test_failure_rules import on_codes
from tests.situations import situations

ROUND = a_round(0, 1, number=2)
IGNORED = find_rule(parse_rules([on_codes("Ignore", 1)]), 1, frozenset())
COUNTED = find_rule(parse_rules([on_codes("Count", 1)]), 1, frozenset())
BOOM = FailureRecord("w1", 1, 1, "", "ValueError: boom", NOW)


def suspended(status: str, reason: str) -> dict[str, Any]:
    return {
        "observedGeneration": 1,
        "conditions": [{"type": "Suspended", "status": status, "reason": reason}],
    }


def moment(job: dict[str, Any] | None = None, **said: Any) -> tuple[Job, News]:
    return a_job(**(job or {})), News(**said)


@situations(
    "moment, events",
    {
        "nothing": (moment(), []),
        "suspended": (moment({"suspend": True}), ["JobSuspended with status"]),
        "told, pods are left": (
            moment({"suspend": True, "status": suspended("False", "Suspending")}),
            [],
        ),
        "told, no pod is left": (
            moment({"suspend": True, "status": suspended("True", "JobSuspended")}),
            [],
        ),
        "resumed": (
            moment({"status": suspended("True", "JobSuspended")}),
            ["JobResumed with status"],
        ),
        "resumed early": (
            moment({"status": suspended("False", "Suspending")}),
            ["JobResumed with status"],
        ),
        "resumed before": (moment({"status": suspended("False", "JobResumed")}), []),
        "a size that is not allowed": (
            moment({"replicas": 4, "resizePolicy": {"allowedReplicas": [1, 3]}}),
            ["ScaleRefused with status"],
        ),
        "a size that is not allowed, told": (
            moment(
                {
                    "replicas": 4,
                    "resizePolicy": {"allowedReplicas": [1, 3]},
                    "status": {"observedGeneration": 1},
                }
            ),
            [],
        ),
        "a torn unit is asked for": (
            moment({"replicas": 3, "minimum": 2, "unitReplicas": 2}),
            ["ScaleRefused with status"],
        ),
        "refused writes": (
            moment(refusals=["no", "never"]),
            ["RefusedByApiServer warning", "RefusedByApiServer warning"],
        ),
        "a wait is over": (moment(waited="After 60.0 s"), ["CheckpointWaitEnded"]),
        "an ignored failure": (moment(failed=replace(BOOM, rule=IGNORED)), ["FailureIgnored"]),
        "a failure that counts": (moment(failed=replace(BOOM, rule=COUNTED)), []),
        "a round": (moment(declared=replace(ROUND, reason="WorkerJoined")), ["WorkerJoined"]),
        "a loss": (moment(declared=replace(ROUND, reason="WorkerLost")), ["WorkerLost warning"]),
        "the round of a suspension": (moment(declared=replace(ROUND, reason="JobSuspended")), []),
        "trains again": (
            moment(resumed=Interruption(2, "WorkerLost", NOW, seconds=1.0)),
            ["TrainingResumed"],
        ),
        "complete": (
            moment(ending=Ending(True, "WorkersSucceeded", "m")),
            ["JobCompleted with status"],
        ),
        "failed": (
            moment(ending=Ending(False, "TooManyFailures", "m")),
            ["JobFailed warning with status"],
        ),
    },
)
def test_events(moment: tuple[Job, News], events: list[str]) -> None:
    job, news = moment
    told = record_events(job, a_target(job), observed(round=a_round(0)), news)
    assert events == [
        f"{event.reason}{' warning' * event.warning}{' with status' * event.with_status}"
        for event in told
    ]


def test_refusals_begin_with_a_capital() -> None:
    assert [event.note for event in record_refusals(["the API server refuses: x", ""])] == [
        "The API server refuses: x",
        "",
    ]


def test_slowest_phase_of_an_interruption_is_named() -> None:
    phases = {"detection": 0.1, "stop": 20.0, "init": 20.0}
    resumed = Interruption(2, "WorkerLost", NOW, seconds=41.0, phases=phases)
    [event] = record_events(a_job(), a_target(a_job()), observed(), News(resumed=resumed))
    assert event.note.endswith("; the slowest phase was stop (20.0 s)")
