from typing import Any

import pytest
from elastic_pytorch_operator.api.gang_schedulers import COSCHEDULING, KUBERNETES
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import parse_job
from elastic_pytorch_operator.spec.scheduling import NO_SCHEDULING, Scheduling, UnitTopology, read_scheduling

from tests.operator.builders import a_manifest


@pytest.mark.parametrize(
    ("fields", "scheduling"),
    [
        (None, NO_SCHEDULING),
        ({}, NO_SCHEDULING),
        ({"gangScheduler": "Coscheduling"}, Scheduling(COSCHEDULING)),
        ({"gangScheduler": "Kubernetes", "scheduleTimeoutSeconds": 60}, Scheduling(KUBERNETES, 60)),
        ({"scheduleTimeoutSeconds": 1}, Scheduling(timeout_seconds=1)),
        ({"unitTopology": {"topologyKey": "rack"}}, Scheduling(unit_topology=UnitTopology("rack"))),
        (
            {"unitTopology": {"topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}},
            Scheduling(unit_topology=UnitTopology("rack", required=False)),
        ),
        ({"rankTopologyKey": "example.com/rack"}, Scheduling(rank_topology_key="example.com/rack")),
    ],
)
def test_scheduling_is_read(fields: dict[str, Any] | None, scheduling: Scheduling) -> None:
    assert read_scheduling({"scheduling": fields, "unitReplicas": 2}) == scheduling


def test_two_gangs_at_once_are_refused() -> None:
    with pytest.raises(InvalidJob) as refused:
        read_scheduling({"scheduling": {"gangScheduler": "Coscheduling"}}, kueue_queue="team")
    assert refused.value.path == "spec.scheduling.gangScheduler"
    assert "together with the label kueue.x-k8s.io/queue-name" in str(refused.value)
    assert "remove gangScheduler, or the label" in str(refused.value)


def test_the_label_of_a_queue_is_seen_beside_a_pod_group() -> None:
    manifest = a_manifest("lm", scheduling={"gangScheduler": "Coscheduling"})
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    with pytest.raises(InvalidJob, match="together with the label"):
        parse_job(manifest)
