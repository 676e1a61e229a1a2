"""The jobs are valid, run the same script in the same pods, and the PyTorchJob has what its rendezvous can be tuned by."""

from typing import Any

import pytest
import yaml
from elastic_pytorch_local.manifests.admission import admit
from kubeflow.jobs import JOBS, RENDEZVOUS, SCRIPTS, SIZE, Job, manifest, path
from kubeflow.losses import KINDS, Kind, victim
from measure.recorded_job import scripts

from tests.job_schema import VALIDATOR
from tests.paths import ROOT

OURS = [job for job in JOBS.values() if not job.kubeflow]
THEIRS = [job for job in JOBS.values() if job.kubeflow]


def pod_of(job: Job) -> Any:
    spec = manifest(job, "j-1", "folder")["spec"]
    return spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"] if job.kubeflow else spec["template"]["spec"]


@pytest.mark.parametrize("job", OURS, ids=lambda job: job.name)
def test_jobs_of_this_operator_are_valid(job: Job) -> None:
    made = manifest(job, "j-1", "folder")
    VALIDATOR.validate(made)
    admit(made | {"metadata": made["metadata"] | {"namespace": "kubeflow-1"}})
    assert path(job, "ns", "j-1").endswith("/namespaces/ns/elasticpytorchjobs/j-1")


def test_pods_are_alike() -> None:
    pods = [pod_of(job) for job in JOBS.values()]
    for name in ("terminationGracePeriodSeconds", "securityContext", "volumes"):
        assert all(pod[name] == pods[0][name] for pod in pods), name
    containers = [pod["containers"][0] for pod in pods]
    for name in ("image", "resources", "securityContext", "volumeMounts"):
        assert all(container[name] == containers[0][name] for container in containers), name
    plain = [container["args"] for job, container in zip(JOBS.values(), containers, strict=True) if job.how == "plain"]
    assert len(plain) == 3
    assert plain == [plain[0]] * 3


@pytest.mark.parametrize("job", THEIRS, ids=lambda job: job.name)
def test_pytorchjob_is_elastic_and_its_torchrun_waits_as_shortly_as_it_can(job: Job) -> None:
    spec = manifest(job, "j-1", "folder")["spec"]
    ours = manifest(JOBS["plain"], "j-1", "folder")["spec"]
    policy, workers = spec["elasticPolicy"], spec["pytorchReplicaSpecs"]["Worker"]
    assert workers["replicas"] == ours["replicas"] == SIZE
    assert [policy[name] for name in ("minReplicas", "maxReplicas")] == [ours[name] for name in ("minReplicas", "maxReplicas")]
    assert {entry["key"]: entry["value"] for entry in policy["rdzvConf"]} == {key: str(n) for key, n in RENDEZVOUS.items()}
    assert workers["restartPolicy"] == "OnFailure"
    assert path(job, "ns") == "/apis/kubeflow.org/v1/namespaces/ns/pytorchjobs"


def test_scripts_are_those_that_containers_find() -> None:
    assert set(scripts(SCRIPTS)["data"]) == {"train.py", "events.py", "later_torchrun.py"}


def a_pod(index: int, *, leaving: bool = False) -> dict[str, Any]:
    labels = {"training.kubeflow.org/replica-index": str(index)}
    return {"metadata": {"name": f"w{index}", "labels": labels} | ({"deletionTimestamp": "now"} if leaving else {})}


@pytest.mark.parametrize(
    ("kind", "job", "rank_0", "lost"),
    [
        ("first-force", "pytorchjob", "w2", "w0"),  # where the others meet, whatever its rank
        ("first-delete", "plain", "w2", "w2"),
        ("worker-force", "pytorchjob", "w1", "w2"),  # neither
        ("worker-delete", "pytorchjob", "w0", "w1"),
        ("worker-delete", "library", "w0", "w1"),
    ],
)
def test_pod_to_lose_is_the_first_or_neither_first_nor_rank_0(kind: str, job: str, rank_0: str, lost: str) -> None:
    pods = [a_pod(index) for index in (2, 1, 0)]
    assert victim(KINDS[kind], JOBS[job], pods, rank_0) == lost


def test_pods_that_leave_are_not_lost_again() -> None:
    kind: Kind = KINDS["worker-force"]
    assert victim(kind, JOBS["pytorchjob"], [a_pod(0), a_pod(1, leaving=True), a_pod(2)], "w0") == "w2"
    with pytest.raises(ValueError, match="no pod to lose among w0"):
        victim(kind, JOBS["pytorchjob"], [a_pod(0), a_pod(1, leaving=True)], "w0")


def test_only_pytorchjobs_are_installed_and_only_a_word_is_filled_in() -> None:
    made = yaml.safe_load((ROOT / "hack" / "kubeflow" / "kustomization.yaml").read_text())
    [crd] = [name for name in made["resources"] if "/crds/" in name]
    assert crd.endswith("kubeflow.org_pytorchjobs.yaml")
    deployment = yaml.safe_load(made["patches"][1]["patch"])
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["args"]) == ("@IMAGE@", ["--enable-scheme=pytorchjob"])
