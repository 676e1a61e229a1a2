"""Which events a moment has.

What their notes say of rounds and interruptions, tests/plugin/test_operator_sentences.py reads.
"""

from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.model.failure import FailureRecord
from elastic_pytorch_operator.planning.completion import Ending
from elastic_pytorch_operator.planning.reporting.events import News, record_events, record_refusals
from elastic_pytorch_operator.planning.reporting.interruption import Interruption
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import WaitEnd, WaitEndReason
from elastic_pytorch_operator.spec.failure_rules import find_rule, parse_rules

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


@situations(
    "job, said, events",
    {
        "nothing": ({}, {}, []),
        "suspended": ({"suspend": True}, {}, [("JobSuspended", False, True)]),
        "told, pods are left": (
            {"suspend": True, "status": suspended("False", "Suspending")},
            {},
            [],
        ),
        "told, no pod is left": (
            {"suspend": True, "status": suspended("True", "JobSuspended")},
            {},
            [],
        ),
        "resumed": (
            {"status": suspended("True", "JobSuspended")},
            {},
            [("JobResumed", False, True)],
        ),
        "resumed early": (
            {"status": suspended("False", "Suspending")},
            {},
            [("JobResumed", False, True)],
        ),
        "resumed before": ({"status": suspended("False", "JobResumed")}, {}, []),
        "a size that is not allowed": (
            {"replicas": 4, "resizePolicy": {"allowedReplicas": [1, 3]}},
            {},
            [("ScaleRefused", False, True)],
        ),
        "a size that is not allowed, told": (
            {
                "replicas": 4,
                "resizePolicy": {"allowedReplicas": [1, 3]},
                "status": {"observedGeneration": 1},
            },
            {},
            [],
        ),
        "a torn unit is asked for": (
            {"replicas": 3, "minimum": 2, "unitReplicas": 2},
            {},
            [("ScaleRefused", False, True)],
        ),
        "refused writes": (
            {},
            {"refusals": ["no", "never"]},
            [("RefusedByApiServer", True, False)] * 2,
        ),
        "a wait is over": (
            {},
            {"waited": WaitEnd(WaitEndReason.TOO_LONG, 60.0)},
            [("CheckpointWaitEnded", False, False)],
        ),
        "an ignored failure": (
            {},
            {"failed": replace(BOOM, rule=IGNORED)},
            [("FailureIgnored", False, False)],
        ),
        "a failure that counts": ({}, {"failed": replace(BOOM, rule=COUNTED)}, []),
        "a round": (
            {},
            {"declared": replace(ROUND, reason="WorkerJoined")},
            [("WorkerJoined", False, False)],
        ),
        "a loss": (
            {},
            {"declared": replace(ROUND, reason="WorkerLost")},
            [("WorkerLost", True, False)],
        ),
        "the round of a suspension": ({}, {"declared": replace(ROUND, reason="JobSuspended")}, []),
        "trains again": (
            {},
            {"resumed": Interruption(2, "WorkerLost", NOW, seconds=1.0)},
            [("TrainingResumed", False, False)],
        ),
        "complete": (
            {},
            {"ending": Ending(True, "WorkersSucceeded", "m")},
            [("JobCompleted", False, True)],
        ),
        "failed": (
            {},
            {"ending": Ending(False, "TooManyFailures", "m")},
            [("JobFailed", True, True)],
        ),
    },
)
def test_events(
    job: dict[str, Any], said: dict[str, Any], events: list[tuple[str, bool, bool]]
) -> None:
    told = record_events(
        a_job(**job), a_target(a_job(**job)), observed(round=a_round(0)), News(**said)
    )
    assert [(event.reason, event.warning, event.with_status) for event in told] == events


def test_refusals_begin_with_a_capital() -> None:
    assert [event.note for event in record_refusals(["the API server refuses: x", ""])] == [
        "The API server refuses: x",
        "",
    ]
