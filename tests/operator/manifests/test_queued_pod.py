import pytest
from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.manifests.queued_pod import PlacementConflict, place_pod
from elastic_pytorch_operator.model.workload import Admission, Grant

from tests.operator.builders import a_job, a_worker_pod

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
    update = {"name": "main", "annotations": {"consume": "request-1"}, "nodeSelector": {"zone": "a"}, "labels": {"l": "1"}}
    place_pod(pod, a_grant(updates=(update,)), [FLAVOR])
    assert pod["spec"]["nodeSelector"] == {"pool": "gpus", "zone": "a"}
    assert (pod["metadata"]["annotations"]["consume"], pod["metadata"]["labels"]["l"]) == ("request-1", "1")


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
    assert str(refused.value) == f"{field} sets pool to 'cpus', and Kueue to 'gpus': remove it there"
