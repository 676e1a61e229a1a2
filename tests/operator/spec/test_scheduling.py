"""`spec.scheduling`."""

from typing import Any

import pytest
from elastic_pytorch_operator.api.gang_schedulers import COSCHEDULING, KAI, VOLCANO
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import parse_job
from elastic_pytorch_operator.spec.scheduling import NO_SCHEDULING, Scheduling, read_scheduling

from tests.operator.builders import a_manifest


@pytest.mark.parametrize(
    ("fields", "scheduling"),
    [
        (None, NO_SCHEDULING),
        ({}, NO_SCHEDULING),
        ({"podGroup": "coscheduling"}, Scheduling(COSCHEDULING)),
        ({"podGroup": "volcano"}, Scheduling(VOLCANO)),
        ({"podGroup": "volcano", "queue": "team-a"}, Scheduling(VOLCANO, "team-a")),
        ({"podGroup": "kai", "queue": "team-a", "scheduleTimeoutSeconds": 60}, Scheduling(KAI, "team-a", 60)),
        ({"scheduleTimeoutSeconds": 1}, Scheduling(timeout_seconds=1)),
    ],
)
def test_scheduling_is_read(fields: dict[str, Any] | None, scheduling: Scheduling) -> None:
    assert read_scheduling({"scheduling": fields}) == scheduling


@pytest.mark.parametrize(
    ("fields", "path", "problem"),
    [
        ("volcano", "", "must be an object"),
        ({"podGroup": "yunikorn"}, ".podGroup", "must be one of coscheduling, volcano, kai"),
        ({"podGroup": "kai"}, ".queue", "must be set with podGroup kai"),
        ({"queue": "team-a"}, ".queue", "may not be set unless podGroup is volcano or kai"),
        ({"podGroup": "coscheduling", "queue": "team-a"}, ".queue", "may not be set unless podGroup is volcano or kai"),
        ({"podGroup": "volcano", "queue": 1}, ".queue", "must be the name of a queue"),
        ({"scheduleTimeoutSeconds": 0}, ".scheduleTimeoutSeconds", "greater than or equal to 1"),
        ({"scheduleTimeoutSeconds": "60"}, ".scheduleTimeoutSeconds", "must be a whole number"),
    ],
)
def test_what_does_not_go_together_is_refused(fields: object, path: str, problem: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        read_scheduling({"scheduling": fields})
    assert refused.value.path == f"spec.scheduling{path}"
    assert problem in str(refused.value)


def test_two_gangs_at_once_are_refused() -> None:
    with pytest.raises(InvalidJob) as refused:
        read_scheduling({"scheduling": {"podGroup": "volcano"}}, kueue_queue="team")
    assert refused.value.path == "spec.scheduling.podGroup"
    assert "together with the label kueue.x-k8s.io/queue-name" in str(refused.value)
    assert "remove podGroup, or the label" in str(refused.value)


def test_the_label_of_a_queue_is_seen_beside_a_pod_group() -> None:
    manifest = a_manifest("lm", scheduling={"podGroup": "volcano"})
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    with pytest.raises(InvalidJob, match="together with the label"):
        parse_job(manifest)
