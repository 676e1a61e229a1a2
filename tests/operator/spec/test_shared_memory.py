"""The /dev/shm of worker pods."""

from typing import Any

import pytest
from elastic_pytorch_operator.manifests.stock_pods import stock_worker_pod, store_pod
from elastic_pytorch_operator.spec.fields import InvalidJob

from tests.operator.builders import a_job, a_worker_pod

NAME = "elastic-pytorch-shared-memory"
CPU: dict[str, Any] = {"name": "pytorch", "image": "torch"}
GPU: dict[str, Any] = {**CPU, "resources": {"limits": {"nvidia.com/gpu": 1}}}
UNLIMITED, EIGHT = {"medium": "Memory"}, {"medium": "Memory", "sizeLimit": "8Gi"}


def mounting(path: str) -> dict[str, Any]:
    return {**GPU, "volumeMounts": [{"name": "own", "mountPath": path}]}


def pod_of(container: dict[str, Any], size: object = None, backend: str = "operator", **pod: Any) -> dict[str, Any]:
    spec = {} if size is None else {"sharedMemorySize": size}
    job = a_job(template={"spec": {"containers": [container], **pod}}, rendezvous={"backend": backend}, **spec)
    return stock_worker_pod(job, 0, "x", 1) if job.stock else a_worker_pod(job, 0)


def shared_memory_of(pod: dict[str, Any]) -> dict[str, Any] | None:
    """The emptyDir at the training container's /dev/shm, if it is the operator's."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    [container, *others] = pod["spec"]["containers"]
    assert not any(mount["name"] == NAME for other in others for mount in other.get("volumeMounts") or ())
    mounts = [mount for mount in container.get("volumeMounts") or () if mount["name"] == NAME]
    assert [mount["mountPath"] for mount in mounts] == ["/dev/shm"] * (NAME in volumes)
    found: dict[str, Any] | None = volumes.get(NAME, {}).get("emptyDir")
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
def test_shared_memory(backend: str, container: dict[str, Any], size: object, expected: dict[str, Any] | None) -> None:
    assert shared_memory_of(pod_of(container, size, backend)) == expected


def test_the_hosts_ipc_namespace_brings_its_own() -> None:
    assert shared_memory_of(pod_of(GPU, "8Gi", hostIPC=True)) is None


def test_a_sidecar_gets_none_and_its_mount_does_not_decide() -> None:
    sidecar = {"name": "logs", "volumeMounts": [{"name": "own", "mountPath": "/dev/shm"}], "resources": GPU["resources"]}
    pod = a_worker_pod(a_job(template={"spec": {"containers": [GPU, sidecar]}}), 0)
    assert shared_memory_of(pod) == UNLIMITED
    pod = a_worker_pod(a_job(template={"spec": {"containers": [CPU, sidecar]}}), 0)
    assert shared_memory_of(pod) is None


def test_the_users_volumes_stay() -> None:
    own = [{"name": "dshm", "emptyDir": {"medium": "Memory"}}, {"name": "data", "emptyDir": {}}]
    pod = pod_of(mounting("/data"), volumes=own)
    assert pod["spec"]["volumes"][:2] == own
    assert pod["spec"]["containers"][0]["volumeMounts"][0] == {"name": "own", "mountPath": "/data"}


def test_the_pod_of_a_store_has_none() -> None:
    pod = store_pod(a_job(template={"spec": {"containers": [GPU]}}, rendezvous={"backend": "c10d"}), "x", 1)
    assert "volumes" not in pod["spec"]


@pytest.mark.parametrize("size", ["", "much", "-1Gi", "8 Gi", "8gb", True, [1]])
def test_a_size_that_is_no_quantity_is_refused(size: object) -> None:
    with pytest.raises(InvalidJob, match=r"spec\.sharedMemorySize: must be a quantity such as 8Gi"):
        a_job(sharedMemorySize=size)
