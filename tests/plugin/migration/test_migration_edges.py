"""What is rare in old manifests: names, hosts, bounds, and containers."""

from typing import Any

import pytest
import yaml
from elastic_pytorch_client.migration.documents import Migrated, migrate_documents
from elastic_pytorch_client.migration.job_metadata import LONGEST_NAME
from elastic_pytorch_client.migration.sources.jobset import MAX_BACKOFF_LIMIT
from elastic_pytorch_client.migration.sources.training_pods import MAX_FAILURES
from elastic_pytorch_client.migration.template import ACCELERATORS
from elastic_pytorch_operator.spec.resources import DEVICES
from elastic_pytorch_operator.spec.schema.rules import MAX_NAME_LENGTH
from elastic_pytorch_operator.spec.schema.validator import bound_of

JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: old}
spec:
  nprocPerNode: "1"
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - {name: pytorch, image: my-image, command: [torchrun, train.py]}
"""


def job(**spec: Any) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load(JOB)
    manifest["spec"] |= spec
    return manifest


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    return found


def migrate(manifest: dict[str, Any]) -> Migrated:
    [found] = migrate_documents([manifest])
    return found


def spec_of(migrated: Migrated) -> dict[str, Any]:
    assert migrated.failed is None, migrated.failed
    found: dict[str, Any] = migrated.documents[0]["spec"]
    return found


def remarks_of(migrated: Migrated) -> str:
    return "\n".join(str(remark) for remark in migrated.remarks)


def test_the_command_and_the_operator_count_the_same_devices() -> None:
    assert set(ACCELERATORS) == DEVICES


def test_a_volume_that_the_old_kind_made_itself_is_missed() -> None:
    old = job()
    pod(old)["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    found = migrate(old)
    assert not found.documents
    assert str(found.failed).startswith(
        "container pytorch: mounts the volume data, which the new job does not have"
    )
    pod(old)["volumes"] = [{"name": "data", "emptyDir": {}}]
    assert migrate(old).failed is None


@pytest.mark.parametrize("queue", [True, False])
def test_a_job_that_kueue_has_suspended_is_told_of(queue: bool) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "q"} if queue else {}
    trainjob = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "old", "labels": labels},
        "spec": {
            "suspend": True,
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"image": "i", "command": ["torchrun", "t.py"]},
        },
    }
    pytorchjob = job(runPolicy={"suspend": True})
    pytorchjob["metadata"]["labels"] = labels
    for found in (migrate(trainjob), migrate(pytorchjob)):
        assert spec_of(found)["suspend"]
        assert ("set it to false if Kueue set it" in remarks_of(found)) is queue


def test_the_only_container_trains_whatever_its_name() -> None:
    old = job()
    pod(old)["containers"][0]["name"] = "trainer"
    [container] = spec_of(migrate(old))["template"]["spec"]["containers"]
    assert container == {"name": "pytorch", "image": "my-image", "args": ["train.py"]}


def test_which_of_several_containers_trains_is_not_guessed() -> None:
    old = job()
    pod(old)["containers"] = [{"name": "a"}, {"name": "b"}]
    assert "has none that is named `pytorch`" in str(migrate(old).failed)


def test_a_sidecar_stays_as_it_is() -> None:
    old = job()
    sidecar = {
        "name": "logs",
        "image": "i",
        "command": ["tail"],
        "env": [{"name": "RANK", "value": "0"}],
    }
    pod(old)["containers"].insert(0, dict(sidecar))
    assert spec_of(migrate(old))["template"]["spec"]["containers"][0] == sidecar


def test_roles_in_small_letters_are_understood_and_unknown_ones_are_not() -> None:
    old = job()
    old["spec"]["pytorchReplicaSpecs"]["worker"] = old["spec"]["pytorchReplicaSpecs"].pop("Worker")
    assert spec_of(migrate(old))["replicas"] == 2
    old["spec"]["pytorchReplicaSpecs"]["Chief"] = {}
    assert "must have Worker, Master, or both" in str(migrate(old).failed)


@pytest.mark.parametrize(
    ("policy", "sizes"),
    [
        ({}, {"replicas": 2}),
        ({"minReplicas": 2, "maxReplicas": 2}, {"replicas": 2}),
        ({"minReplicas": 1, "maxReplicas": 4}, {"replicas": 2, "minReplicas": 1, "maxReplicas": 4}),
        ({"minReplicas": 3, "maxReplicas": 4}, {"replicas": 3, "minReplicas": 3, "maxReplicas": 4}),
        ({"maxReplicas": 1}, {"replicas": 1}),
    ],
)
def test_sizes_of_elastic_jobs(policy: dict[str, int], sizes: dict[str, int]) -> None:
    migrated = migrate(job(elasticPolicy=policy))
    spec = spec_of(migrated)
    assert {
        name: spec[name] for name in ("replicas", "minReplicas", "maxReplicas") if name in spec
    } == sizes
    assert ("replicas are outside of" in remarks_of(migrated)) is (sizes["replicas"] != 2)


def test_pods_that_trained_each_by_itself_are_told_of() -> None:
    old = job()
    pod(old)["containers"][0]["command"] = ["torchrun", "--standalone", "train.py"]
    migrated = migrate(old)
    assert spec_of(migrated)["replicas"] == 2
    assert "trained by itself (standalone)" in remarks_of(migrated)


def test_workers_without_a_master_and_without_torchrun_had_no_group() -> None:
    old = job()
    pod(old)["containers"][0]["command"] = ["python", "train.py"]
    assert "without a Master, each worker trained by itself" in remarks_of(migrate(old))


def test_hosts_of_the_old_pods_are_told_of() -> None:
    old = job()
    pod(old)["containers"][0]["env"] = [{"name": "STORE", "value": "tcp://old-worker-0:1234"}]
    assert "old-worker-0 is a host of the old job" in remarks_of(migrate(old))


def test_an_autoscaler_needs_a_name() -> None:
    old = job(elasticPolicy={"minReplicas": 1, "maxReplicas": 2, "metrics": [{"type": "Resource"}]})
    old["metadata"] = {"generateName": "old-"}
    migrated = migrate(old)
    assert len(migrated.documents) == 1
    assert "needs a job with a name" in remarks_of(migrated)


def test_labels_and_hosts_that_are_the_operators_are_dropped() -> None:
    old = job()
    template = old["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"name": "x", "labels": {"training.kubeflow.org/job-role": "master"}}
    template["spec"] |= {"hostname": "me", "activeDeadlineSeconds": 600}
    migrated = migrate(old)
    assert "metadata" not in spec_of(migrated)["template"]
    assert (
        spec_of(migrated)["template"]["spec"]
        .keys()
        .isdisjoint({"hostname", "activeDeadlineSeconds"})
    )
    assert "labels[training.kubeflow.org/job-role]: is dropped" in remarks_of(migrated)


def test_only_torch_runtimes_can_be_migrated() -> None:
    runtime = {
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "r"},
        "spec": {"mlPolicy": {"numNodes": 1, "mpi": {}}},
    }
    old = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "old"},
        "spec": {
            "runtimeRef": {"name": "r"},
            "trainer": {"image": "i", "command": ["torchrun", "t.py"]},
        },
    }
    [migrated] = migrate_documents([runtime, old])
    assert "has no mlPolicy.torch (it has mpi)" in str(migrated.failed)
    [migrated] = migrate_documents([{**old, "spec": {"runtimeRef": {"name": "torch-distributed"}}}])
    assert "spec.trainer.image: is missing" in str(migrated.failed)


def test_bounds_are_those_of_the_schema() -> None:
    assert LONGEST_NAME == MAX_NAME_LENGTH
    assert bound_of("maximum", "failurePolicy", "maxFailures") == MAX_FAILURES
    assert bound_of("maximum", "failurePolicy", "backoffLimit") == MAX_BACKOFF_LIMIT


def trainjob(**trainer: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "old"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"image": "i", **trainer}},
    }


def test_variables_of_a_trainer_read_the_new_labels() -> None:
    label = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    env = [{"name": "POD_INDEX", "valueFrom": {"fieldRef": {"fieldPath": label}}}]
    found = migrate(trainjob(command=["torchrun", "t.py"], env=env))
    [container] = spec_of(found)["template"]["spec"]["containers"]
    field = container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]
    assert field == "metadata.labels['elasticpytorch.dev/worker-index']"
    assert "reads the label elasticpytorch.dev/worker-index now" in remarks_of(found)


def test_the_index_of_a_trainjobs_pods_is_missed() -> None:
    found = migrate(trainjob(command=["bash", "-c", "date; torchrun t.py $JOB_COMPLETION_INDEX"]))
    assert "it uses JOB_COMPLETION_INDEX, which is not set here" in remarks_of(found)


def test_an_option_of_torchrun_wins_over_trainers_number_of_processes() -> None:
    cpus = {"requests": {"cpu": 4}}
    found = migrate(
        trainjob(command=["torchrun", "--nproc-per-node=auto", "t.py"], resourcesPerNode=cpus)
    )
    assert spec_of(found)["nprocPerNode"] == "auto"
    assert (
        spec_of(migrate(trainjob(command=["torchrun", "t.py"], resourcesPerNode=cpus)))[
            "nprocPerNode"
        ]
        == 4
    )


@pytest.mark.parametrize(("length", "fits"), [(LONGEST_NAME - 5, True), (LONGEST_NAME - 4, False)])
def test_a_name_that_the_api_server_completes_has_room_for_that(length: int, fits: bool) -> None:
    old = job()
    old["metadata"] = {"generateName": "a" * (length - 1) + "-"}
    found = migrate(old)
    assert (found.failed is None) is fits
    assert fits or "metadata.generateName: must have at most 40 characters" in str(found.failed)


def test_runtimes_of_a_list_are_found() -> None:
    runtime = {
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "r"},
        "spec": {"mlPolicy": {"mpi": {}}},
    }
    old = trainjob(command=["torchrun", "t.py"])
    old["spec"]["runtimeRef"] = {"name": "r"}
    [found] = migrate_documents([old], [{"kind": "List", "items": [runtime]}])
    assert "has no mlPolicy.torch (it has mpi)" in str(found.failed)


def test_restarts_have_the_bound_of_failures() -> None:
    found = migrate(trainjob(command=["torchrun", "--max-restarts=5000", "t.py"]))
    assert spec_of(found)["failurePolicy"] == {"maxFailures": MAX_FAILURES}
