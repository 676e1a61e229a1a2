from typing import Any

import pytest
from elastic_pytorch_operator.manifests.stock_pods import store_pod
from elastic_pytorch_operator.manifests.worker_pod import volume_claim

from tests.operator.builders import a_job, a_stock_pod, a_worker_pod

SPEC = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
OURS = {
    "app.kubernetes.io/managed-by": "elastic-pytorch-operator",
    "elasticpytorch.dev/job-name": "lm",
}
CONTAINERS = [{"name": "pytorch", "image": "torch"}]


def a_template(name: object = "checkpoints", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": SPEC}


def test_a_claim_is_named_by_template_and_job_and_stays_by_default() -> None:
    job = a_job(sharedVolumeClaims=[a_template()])
    claim = volume_claim(job, job.claims[0])
    assert (claim["apiVersion"], claim["kind"], claim["spec"]) == (
        "v1",
        "PersistentVolumeClaim",
        SPEC,
    )
    assert claim["metadata"] == {
        "name": "checkpoints-lm",
        "namespace": "default",
        "labels": {"app.kubernetes.io/name": "elastic-pytorch-job", **OURS},
    }


@pytest.mark.parametrize(
    ("policy", "owned"),
    [
        (None, False),
        ({}, False),
        ({"whenDeleted": "Retain"}, False),
        ({"whenDeleted": "Delete"}, True),
    ],
)
def test_a_claim_is_the_jobs_only_if_it_is_to_be_deleted_with_it(
    policy: dict[str, str] | None, owned: bool
) -> None:
    job = a_job(sharedVolumeClaims=[a_template()], sharedVolumeClaimRetentionPolicy=policy)
    owners = volume_claim(job, job.claims[0])["metadata"].get("ownerReferences", [])
    assert [(owner["kind"], owner["uid"]) for owner in owners] == [
        ("ElasticPyTorchJob", "uid-lm")
    ] * owned


def test_the_longest_names_make_a_valid_one() -> None:
    job = a_job(name="j" * 45, sharedVolumeClaims=[a_template("t" * 63)])
    assert len(volume_claim(job, job.claims[0])["metadata"]["name"]) == 109, (
        "of the 253 characters that Kubernetes allows"
    )


@pytest.mark.parametrize("backend", ["operator", "c10d"])
def test_pods_have_the_claims_as_volumes_unless_the_template_has_one_of_the_name(
    backend: str,
) -> None:
    own = {"name": "data", "emptyDir": {}}
    job = a_job(
        sharedVolumeClaims=[a_template(), a_template("data")],
        template={"spec": {"containers": CONTAINERS, "volumes": [own]}},
        rendezvous={"backend": backend},
    )
    pod = a_stock_pod(job) if job.stock else a_worker_pod(job, 0)
    claim = {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints-lm"}}
    assert pod["spec"]["volumes"][:2] == [own, claim]
    assert [volume["name"] for volume in pod["spec"]["volumes"]].count("data") == 1
    if job.stock:
        assert "volumes" not in store_pod(job, "x", 1)["spec"]


SHARED_MEMORY = "elastic-pytorch-shared-memory"
CPU: dict[str, Any] = {"name": "pytorch", "image": "torch"}
GPU: dict[str, Any] = {**CPU, "resources": {"limits": {"nvidia.com/gpu": 1}}}
UNLIMITED, EIGHT = {"medium": "Memory"}, {"medium": "Memory", "sizeLimit": "8Gi"}


def mounting(path: str) -> dict[str, Any]:
    return {**GPU, "volumeMounts": [{"name": "own", "mountPath": path}]}


def pod_of(
    container: dict[str, Any], size: object = None, backend: str = "operator", **pod: Any
) -> dict[str, Any]:
    spec = {} if size is None else {"sharedMemorySize": size}
    job = a_job(
        template={"spec": {"containers": [container], **pod}},
        rendezvous={"backend": backend},
        **spec,
    )
    return a_stock_pod(job) if job.stock else a_worker_pod(job, 0)


def shared_memory_of(pod: dict[str, Any]) -> dict[str, Any] | None:
    """The emptyDir at the training container's /dev/shm, if it is the operator's."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    [container, *others] = pod["spec"]["containers"]
    assert not any(
        mount["name"] == SHARED_MEMORY
        for other in others
        for mount in other.get("volumeMounts") or ()
    )
    mounts = [
        mount for mount in container.get("volumeMounts") or () if mount["name"] == SHARED_MEMORY
    ]
    assert [mount["mountPath"] for mount in mounts] == ["/dev/shm"] * (SHARED_MEMORY in volumes)
    found: dict[str, Any] | None = volumes.get(SHARED_MEMORY, {}).get("emptyDir")
    return found


@pytest.mark.parametrize("backend", ["operator", "c10d"])
@pytest.mark.parametrize(
    ("container", "size", "expected"),
    [
        (CPU, None, None),
        (CPU, "8Gi", EIGHT),
        (CPU, 1048576, {"medium": "Memory", "sizeLimit": "1048576"}),
        (CPU, "0", None),
        (GPU, None, UNLIMITED),
        (GPU, "8Gi", EIGHT),
        (GPU, "0", None),
        (GPU, 0, None),
        (GPU, "0Gi", None),
        ({**CPU, "resources": {"limits": {"nvidia.com/mig-1g.5gb": 1}}}, None, UNLIMITED),
        (mounting("/dev/shm"), None, None),
        (mounting("/dev/shm/"), "8Gi", None),
        (mounting("/dev"), "8Gi", None),
        (mounting("/dev/shm/ipc"), None, UNLIMITED),
        (mounting("/data"), None, UNLIMITED),
    ],
)
def test_shared_memory(
    backend: str, container: dict[str, Any], size: object, expected: dict[str, Any] | None
) -> None:
    assert shared_memory_of(pod_of(container, size, backend)) == expected


def test_the_hosts_ipc_namespace_brings_its_own() -> None:
    assert shared_memory_of(pod_of(GPU, "8Gi", hostIPC=True)) is None


def test_a_sidecar_gets_none_and_its_mount_does_not_decide() -> None:
    sidecar = {
        "name": "logs",
        "volumeMounts": [{"name": "own", "mountPath": "/dev/shm"}],
        "resources": GPU["resources"],
    }
    pod = a_worker_pod(a_job(template={"spec": {"containers": [GPU, sidecar]}}), 0)
    assert shared_memory_of(pod) == UNLIMITED
    pod = a_worker_pod(a_job(template={"spec": {"containers": [CPU, sidecar]}}), 0)
    assert shared_memory_of(pod) is None


def test_the_users_volumes_stay() -> None:
    own = [{"name": "dshm", "emptyDir": {"medium": "Memory"}}, {"name": "data", "emptyDir": {}}]
    pod = pod_of(mounting("/data"), volumes=own)
    assert pod["spec"]["volumes"][:2] == own
    assert pod["spec"]["containers"][0]["volumeMounts"][0] == {"name": "own", "mountPath": "/data"}
