import itertools
from typing import Any

import pytest
from elastic_pytorch_operator.api.gang_schedulers import COSCHEDULING, KUBERNETES
from elastic_pytorch_operator.model.workload import Admission, Grant
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import parse_job
from elastic_pytorch_operator.spec.platform.job_defaults import JobDefaults
from elastic_pytorch_operator.spec.scheduling import (
    NO_SCHEDULING,
    ExtraWorkers,
    Scheduling,
    UnitTopology,
    read_scheduling,
)

from tests.operator.builders import a_job, a_manifest, a_stock_pod, a_worker_pod


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
    assert read_scheduling({"scheduling": fields, "unitReplicas": 2}, queued=False) == scheduling


def test_two_gangs_at_once_are_refused() -> None:
    with pytest.raises(InvalidJob) as refused:
        read_scheduling({"scheduling": {"gangScheduler": "Coscheduling"}}, queued=True)
    assert refused.value.path == "spec.scheduling.gangScheduler"
    assert "together with the label kueue.x-k8s.io/queue-name" in str(refused.value)
    assert "remove gangScheduler, or the label" in str(refused.value)


SPOT = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
EXTRA = {"nodeSelector": {"capacity": "spot"}, "tolerations": [SPOT]}


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "pytorch", "image": "torch"}], **spec}}


@pytest.mark.parametrize(
    ("fields", "extra"),
    [
        (None, None),
        ({}, ExtraWorkers()),
        ({"nodeSelector": {"capacity": "spot"}}, ExtraWorkers({"capacity": "spot"})),
        (EXTRA, ExtraWorkers({"capacity": "spot"}, (SPOT,))),
    ],
)
def test_it_is_read(fields: dict[str, Any] | None, extra: ExtraWorkers | None) -> None:
    assert a_job(scheduling={"extraWorkers": fields}).scheduling.extra_workers == extra


@pytest.mark.parametrize(
    ("fields", "other_flavors"),
    [
        (None, False),
        ({}, False),
        ({"nodeSelector": {"capacity": "spot"}}, True),
        ({"tolerations": [SPOT]}, True),
    ],
)
def test_extras_of_a_queue_may_have_other_flavors_if_their_nodes_are_chosen(
    fields: dict[str, Any] | None, other_flavors: bool
) -> None:
    manifest = a_manifest(scheduling={"extraWorkers": fields})
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "training"}
    assert parse_job(manifest).extras_choose_flavors == other_flavors


def test_quota_of_a_pod_decides_on_its_template_rather_than_its_index() -> None:
    job = a_job(minimum=2, template=template(), scheduling={"extraWorkers": EXTRA})
    grants = {extra: Grant("lm", "team", Admission("shared", 1), extra) for extra in (False, True)}
    for index, extra in itertools.product((0, 2), (False, True)):
        pods = (
            a_worker_pod(job, index, grant=grants[extra]),
            a_stock_pod(job, index, grant=grants[extra]),
        )
        assert ["nodeSelector" in pod["spec"] for pod in pods] == [extra, extra]


def test_pods_beyond_the_minimum_are_for_other_nodes() -> None:
    own = {"key": "gpu", "operator": "Exists"}
    base = template(nodeSelector={"capacity": "on-demand", "zone": "a"}, tolerations=[own])
    job = a_job(replicas=4, minimum=2, maximum=4, template=base, scheduling={"extraWorkers": EXTRA})
    specs = [a_worker_pod(job, index)["spec"] for index in range(4)]
    assert [spec["nodeSelector"]["capacity"] for spec in specs] == [
        "on-demand",
        "on-demand",
        "spot",
        "spot",
    ]
    assert {spec["nodeSelector"]["zone"] for spec in specs} == {"a"}
    assert [SPOT in spec["tolerations"] for spec in specs] == [False, False, True, True]
    assert all(own in spec["tolerations"] for spec in specs)


def test_an_unset_field_leaves_the_template_as_it_is() -> None:
    job = a_job(minimum=1, template=template(), scheduling={"extraWorkers": {}})
    assert a_worker_pod(job, 2)["spec"].keys() == a_worker_pod(job, 0)["spec"].keys()


def test_tolerations_of_the_platform_stay() -> None:
    platform = {"key": "maintenance", "operator": "Exists"}
    job = parse_job(
        a_manifest(scheduling={"extraWorkers": EXTRA}), JobDefaults(tolerations=(platform,))
    )
    tolerations = job.template_of(extra=True)["spec"]["tolerations"]
    assert tolerations == [platform, SPOT]
