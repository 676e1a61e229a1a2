from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.manifests.workload import (
    EXTRA_PRIORITY,
    PlacementConflict,
    base_priority,
    place_pod,
    workload,
)
from elastic_pytorch_operator.model.actions import CreateWorkload
from elastic_pytorch_operator.model.workload import Admission, Grant
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.queue import Queue

from tests.operator.builders import a_job, a_queued_job, a_worker_pod

CLASSES: list[dict[str, Any]] = [
    {"metadata": {"name": "mine"}, "value": 7},
    {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True},
]

UNIT = {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}


def a_job_with(annotations: dict[str, str] | None = None, **pod: Any) -> Job:
    container = {
        "image": "torch",
        "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": 2}},
    }
    template = {
        "metadata": {"annotations": annotations or {}},
        "spec": {"containers": [container], **pod},
    }
    return replace(a_queued_job(), template=template)


def test_base_asks_for_the_minimum_with_its_owner_and_label_in_one_write() -> None:
    job = replace(
        a_job_with(),
        queue=Queue("team", provisioning={"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "60"}),
    )
    made = workload(job, CreateWorkload(0, 2), {"priority": 7}, {})
    assert made["metadata"]["name"] == "lm-base"
    assert (
        made["metadata"]["labels"][kueue.LABEL_JOB_UID]
        == made["metadata"]["ownerReferences"][0]["uid"]
        == job.uid
    )
    assert made["metadata"]["annotations"] == {
        **job.queue.provisioning,
        names.ANNOTATION_QUOTA_FOR: job.quota_for(extra=False),
    }  # type: ignore[union-attr]
    (pods,) = made["spec"]["podSets"]
    assert (made["spec"]["queueName"], made["spec"]["priority"], pods["count"]) == ("team", 7, 2)
    (container,) = pods["template"]["spec"]["containers"]
    assert container["name"] == "pytorch"
    assert container["resources"]["requests"] == {"nvidia.com/gpu": 1, "cpu": 2}, (
        "limits are requests, too"
    )
    assert "name" not in job.template["spec"]["containers"][0], "the job's own template stays"


def test_extra_asks_for_the_nodes_of_the_base() -> None:
    made = workload(
        a_job_with(nodeSelector={"a": "b"}),
        CreateWorkload(3, 1),
        {"priority": EXTRA_PRIORITY},
        {"pool": "gpus"},
    )
    assert made["metadata"]["name"] == "lm-extra-3"
    assert made["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] == {
        "a": "b",
        "pool": "gpus",
    }


def test_extra_asks_for_the_nodes_of_the_extra_workers_at_the_priority_of_all_extras() -> None:
    spot = {"key": "spot", "operator": "Exists"}
    fields = {"nodeSelector": {"pool": "spot"}, "tolerations": [spot]}
    job = replace(
        a_job_with(nodeSelector={"a": "b"}),
        scheduling=a_job(scheduling={"extraWorkers": fields}).scheduling,
    )
    base, extra = (
        workload(job, CreateWorkload(n, 1), {"priority": EXTRA_PRIORITY}, {}) for n in (0, 1)
    )
    asked = [made["spec"]["podSets"][0]["template"]["spec"] for made in (base, extra)]
    assert [spec["nodeSelector"] for spec in asked] == [{"a": "b"}, {"a": "b", "pool": "spot"}]
    assert [spec.get("tolerations") for spec in asked] == [None, [spot]]
    assert (extra["spec"]["priority"], "priorityClassRef" in extra["spec"]) == (
        EXTRA_PRIORITY,
        False,
    )
    kept = [made["metadata"]["annotations"][names.ANNOTATION_QUOTA_FOR] for made in (base, extra)]
    assert kept == [job.quota_for(extra=False), job.quota_for(extra=True)]
    assert kept[0] != kept[1]


@pytest.mark.parametrize(
    ("pod", "of_queue", "expected"),
    [
        ({}, "", (3, "PriorityClass", "usual")),
        ({"priorityClassName": "mine"}, "", (7, "PriorityClass", "mine")),
        ({"priorityClassName": "unknown"}, "", (0, "", "")),
        ({"priorityClassName": "mine"}, "usual", (3, "WorkloadPriorityClass", "usual")),
    ],
)
def test_priority_is_that_of_the_first_class_that_is_named(
    pod: dict[str, str], of_queue: str, expected: tuple[int, str, str]
) -> None:
    job = a_job_with(**pod)
    fields = base_priority(replace(job, queue=Queue("team", of_queue)), CLASSES)
    reference = fields.get("priorityClassRef", {})
    assert (fields["priority"], reference.get("kind", ""), reference.get("name", "")) == expected


def test_topology_of_the_template_is_requested_and_its_order_in_the_base_only() -> None:
    job = a_job_with({kueue.TOPOLOGY_REQUIRED: "rack"})
    base, extra = (
        workload(job, CreateWorkload(n, 1), {}, {})["spec"]["podSets"][0] for n in (0, 1)
    )
    assert base["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": "elasticpytorch.dev/worker-index",
    }
    assert extra["topologyRequest"] == {"required": "rack"}
    assert (
        "topologyRequest"
        not in workload(a_job_with(), CreateWorkload(0, 2), {}, {})["spec"]["podSets"][0]
    )


@pytest.mark.parametrize(
    ("policy", "annotations", "base", "extra"),
    [
        ("DoNotSchedule", {}, {**UNIT, "podIndexLabel": "elasticpytorch.dev/worker-index"}, UNIT),
        ("ScheduleAnyway", {}, None, None),
        (
            "DoNotSchedule",
            {kueue.TOPOLOGY_REQUIRED: "block"},
            {"required": "block", "podIndexLabel": "elasticpytorch.dev/worker-index"},
            {"required": "block"},
        ),
    ],
)
def test_topology_of_units_is_requested_unless_the_template_asks_for_another(
    policy: str,
    annotations: dict[str, str],
    base: dict[str, Any] | None,
    extra: dict[str, Any] | None,
) -> None:
    topology = {"unitTopology": {"topologyKey": "rack", "whenUnsatisfiable": policy}}
    plain = a_job(replicas=4, minimum=2, maximum=4, unitReplicas=2, scheduling=topology)
    job = replace(a_job_with(annotations), scheduling=plain.scheduling, unit_replicas=2)
    sets = [workload(job, CreateWorkload(n, 2), {}, {})["spec"]["podSets"][0] for n in (0, 1)]
    assert [pods.get("topologyRequest") for pods in sets] == [base, extra]


@pytest.mark.parametrize(
    ("size", "asked"), [("2", 2), ("²", None), ("9" * 5000, None), ("-1", None)]
)
def test_slices_of_a_size_that_is_no_number_are_not_asked_for(size: str, asked: int | None) -> None:
    annotations = {
        kueue.TOPOLOGY_REQUIRED: "rack",
        kueue.TOPOLOGY_SLICE: "host",
        kueue.TOPOLOGY_SLICE_SIZE: size,
    }
    [pods] = workload(a_job_with(annotations), CreateWorkload(0, 4), {}, {})["spec"]["podSets"]
    assert pods["topologyRequest"].get("podSetSliceSize") == asked


TOLERATION = {"key": "gpu", "operator": "Exists"}
FLAVOR = {"spec": {"nodeLabels": {"pool": "gpus"}, "tolerations": [TOLERATION]}}


def a_grant(*, extra: bool = False, **fields: object) -> Grant:
    return Grant("lm-base", "team", Admission("shared", 2, ("gpus",), **fields), extra)  # type: ignore[arg-type]


def test_pod_has_the_nodes_of_its_flavor_and_kueues_labels() -> None:
    pod = a_worker_pod(a_job())
    pod["metadata"]["labels"][kueue.LABEL_QUEUE] = "team"
    place_pod(pod, a_grant(), [FLAVOR, FLAVOR])
    labels = pod["metadata"]["labels"]
    assert {key: labels[key] for key in labels if key.startswith(kueue.GROUP)} == {
        kueue.LABEL_POD_SET: "main",
        kueue.LABEL_LOCAL_QUEUE: "team",
        kueue.LABEL_CLUSTER_QUEUE: "shared",
    }
    assert pod["metadata"]["annotations"][kueue.ANNOTATION_WORKLOAD] == "lm-base"
    assert pod["spec"]["nodeSelector"] == {"pool": "gpus"}
    assert pod["spec"]["tolerations"].count(TOLERATION) == 1
    assert "schedulingGates" not in pod["spec"]


def test_pod_whose_node_kueue_chooses_is_gated() -> None:
    pod = a_worker_pod(a_job())
    place_pod(pod, a_grant(topology=True), [])
    assert pod["spec"]["schedulingGates"] == [{"name": kueue.TOPOLOGY_GATE}]
    assert pod["metadata"]["annotations"][kueue.TOPOLOGY_UNCONSTRAINED] == "true"


def test_pod_has_what_admission_checks_add() -> None:
    pod = a_worker_pod(a_job())
    update = {
        "name": "main",
        "annotations": {"consume": "request-1"},
        "nodeSelector": {"zone": "a"},
        "labels": {"l": "1"},
    }
    place_pod(pod, a_grant(updates=(update,)), [FLAVOR])
    assert pod["spec"]["nodeSelector"] == {"pool": "gpus", "zone": "a"}
    assert (pod["metadata"]["annotations"]["consume"], pod["metadata"]["labels"]["l"]) == (
        "request-1",
        "1",
    )


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        (False, "spec.template.spec.nodeSelector"),
        (True, "spec.template.spec.nodeSelector or spec.scheduling.extraWorkers.nodeSelector"),
    ],
)
def test_job_that_contradicts_the_quota_is_refused_with_the_field(extra: bool, field: str) -> None:
    pod = a_worker_pod(a_job())
    pod["spec"]["nodeSelector"] = {"pool": "cpus"}
    with pytest.raises(PlacementConflict) as refused:
        place_pod(pod, a_grant(extra=extra), [FLAVOR])
    assert (
        str(refused.value) == f"{field} sets pool to 'cpus', and Kueue to 'gpus': remove it there"
    )
