"""Which events a moment has. What their notes say of rounds and interruptions, tests/plugin/test_operator_sentences.py reads."""

from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.failure import FailureRecord
from elastic_pytorch_operator.planning.completion import Ending
from elastic_pytorch_operator.planning.reporting.events import News, record_events, record_refusals
from elastic_pytorch_operator.planning.reporting.interruption import Interruption
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import WaitEnd, WaitEndReason
from elastic_pytorch_operator.spec.failure_rules import find_rule, parse_rules

from tests.operator.builders import NOW, a_job, a_round, a_target, observed
from tests.operator.spec.test_failure_rules import on_codes

ROUND = a_round(0, 1, number=2)
IGNORED = find_rule(parse_rules([on_codes("Ignore", 1)]), 1, frozenset())
COUNTED = find_rule(parse_rules([on_codes("Count", 1)]), 1, frozenset())
BOOM = FailureRecord("w1", 1, 1, "", "ValueError: boom", NOW)


def suspended(status: str, reason: str) -> dict[str, Any]:
    return {"observedGeneration": 1, "conditions": [{"type": "Suspended", "status": status, "reason": reason}]}


@pytest.mark.parametrize(
    ("job", "said", "events"),
    [
        pytest.param({}, {}, [], id="nothing"),
        pytest.param({"suspend": True}, {}, [("JobSuspended", False, True)], id="suspended"),
        pytest.param({"suspend": True, "status": suspended("False", "Suspending")}, {}, [], id="told, pods are left"),
        pytest.param({"suspend": True, "status": suspended("True", "JobSuspended")}, {}, [], id="told, no pod is left"),
        pytest.param({"status": suspended("True", "JobSuspended")}, {}, [("JobResumed", False, True)], id="resumed"),
        pytest.param({"status": suspended("False", "Suspending")}, {}, [("JobResumed", False, True)], id="resumed early"),
        pytest.param({"status": suspended("False", "JobResumed")}, {}, [], id="resumed before"),
        pytest.param(
            {"replicas": 4, "resizePolicy": {"allowedReplicas": [1, 3]}},
            {},
            [("ScaleRefused", False, True)],
            id="a size that is not allowed",
        ),
        pytest.param(
            {"replicas": 4, "resizePolicy": {"allowedReplicas": [1, 3]}, "status": {"observedGeneration": 1}},
            {},
            [],
            id="a size that is not allowed, told",
        ),
        pytest.param(
            {"replicas": 3, "minimum": 2, "unitReplicas": 2}, {}, [("ScaleRefused", False, True)], id="a torn unit is asked for"
        ),
        pytest.param({}, {"refusals": ["no", "never"]}, [("RefusedByApiServer", True, False)] * 2, id="refused writes"),
        pytest.param(
            {}, {"waited": WaitEnd(WaitEndReason.TOO_LONG, 60.0)}, [("CheckpointWaitEnded", False, False)], id="a wait is over"
        ),
        pytest.param({}, {"failed": replace(BOOM, rule=IGNORED)}, [("FailureIgnored", False, False)], id="an ignored failure"),
        pytest.param({}, {"failed": replace(BOOM, rule=COUNTED)}, [], id="a failure that counts"),
        pytest.param({}, {"declared": replace(ROUND, reason="WorkerJoined")}, [("WorkerJoined", False, False)], id="a round"),
        pytest.param({}, {"declared": replace(ROUND, reason="WorkerLost")}, [("WorkerLost", True, False)], id="a loss"),
        pytest.param({}, {"declared": replace(ROUND, reason="JobSuspended")}, [], id="the round of a suspension"),
        pytest.param(
            {},
            {"resumed": Interruption(2, "WorkerLost", NOW, seconds=1.0)},
            [("TrainingResumed", False, False)],
            id="trains again",
        ),
        pytest.param({}, {"ending": Ending(True, "WorkersSucceeded", "m")}, [("JobCompleted", False, True)], id="complete"),
        pytest.param({}, {"ending": Ending(False, "TooManyFailures", "m")}, [("JobFailed", True, True)], id="failed"),
    ],
)
def test_events(job: dict[str, Any], said: dict[str, Any], events: list[tuple[str, bool, bool]]) -> None:
    told = record_events(a_job(**job), a_target(a_job(**job)), observed(round=a_round(0)), News(**said))
    assert [(event.reason, event.warning, event.with_status) for event in told] == events


def test_refusals_begin_with_a_capital() -> None:
    assert [event.note for event in record_refusals(["the API server refuses: x", ""])] == ["The API server refuses: x", ""]
