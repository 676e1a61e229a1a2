"""The volumes that a job brings: claims for its workers, and memory for their processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from measure.kind_cluster import KUBECTL

from tests.e2e.api_requests import KUBECONFIG
from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl

pytestmark = pytest.mark.e2e

CLAIM = "data-all-reduce"
SPEC = {
    "storageClassName": "",
    "accessModes": ["ReadWriteMany"],
    "resources": {"requests": {"storage": "1Gi"}},
}
TEMPLATES = [{"metadata": {"name": "data"}, "spec": SPEC}]

# Both workers read what rank 0 of the job before has written, then rank 0 goes on from there.
COUNTER = """\
import os
import pathlib
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
file = pathlib.Path(os.environ["FOLDER"]) / "count"
count = int(file.read_text()) if file.exists() else 0
print(f"rank {rank} begins at {count}", flush=True)
dist.barrier()
if rank == 0:
    file.parent.mkdir(exist_ok=True)
    file.write_text(str(count + 1))
dist.barrier()
"""

# A batch that does not fit into the 64 MiB that a container has without a volume.
READER = """\
import os
import torch
from torch.utils.data import DataLoader, Dataset

class Large(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return torch.ones(72 << 18)

if __name__ == "__main__":
    found = os.statvfs("/dev/shm")
    print("shared memory:", found.f_frsize * found.f_blocks >> 20, "MiB", flush=True)
    [batch] = DataLoader(Large(), batch_size=None, num_workers=1)
    print("read", batch.numel() * batch.element_size() >> 20, "MiB", flush=True)
"""


@pytest.fixture
def make_volume(namespace: str) -> Iterator[Callable[[], None]]:
    """Creates a volume for the job's claim, as an administrator without provisioning does."""
    name = f"{namespace}-data"

    def make() -> None:
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "claimRef": {"namespace": namespace, "name": CLAIM},
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": "/shared"},
        }
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": spec,
        }
        run_kubectl("apply", "-f", "-", input=json.dumps(volume))

    yield make
    run_kubectl("delete", "persistentvolume", name, "--ignore-not-found", "--wait=false")


def count(start_job: StartJob, namespace: str, when_deleted: str) -> JobUnderTest:
    def mount(pod: dict[str, Any]) -> None:
        [container] = pod["containers"]
        container["volumeMounts"].append({"name": "data", "mountPath": "/data"})
        container["env"].append({"name": "FOLDER", "value": f"/data/{namespace}"})

    return start_job(
        script=COUNTER,
        change_pod=mount,
        replicas=2,
        minReplicas=2,
        maxReplicas=2,
        sharedVolumeClaims=TEMPLATES,
        sharedVolumeClaimRetentionPolicy={"whenDeleted": when_deleted},
    )


def delete(job: JobUnderTest) -> None:
    job.kubectl("delete", "epj", job.name, "--wait=true", "--timeout=60s")
    job.kubectl(
        "wait",
        "--for=delete",
        "pod",
        "-l",
        f"elasticpytorch.dev/job-name={job.name}",
        "--timeout=90s",
        check=False,
    )


def why(job: JobUnderTest) -> str:
    """What `kubectl epj why` prints, with the plugin beside this Python on the PATH."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [str(KUBECTL), "epj", "-n", job.namespace, "why", job.name]
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(KUBECONFIG)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


def test_a_volume_is_shared_by_the_workers_and_outlives_its_job(
    start_job: StartJob, namespace: str, make_volume: Callable[[], None]
) -> None:
    job = count(start_job, namespace, "Retain")
    job.until(lambda _: "waiting for a volume claim" in why(job), "a word on the claim")
    assert f"kubectl describe persistentvolumeclaim -n {namespace} {CLAIM}" in " ".join(
        why(job).split()
    )
    make_volume()
    text = job.until_complete()
    assert "rank 0 begins at 0" in text
    assert "rank 1 begins at 0" in text
    before = json.loads(job.kubectl("get", "persistentvolumeclaim", CLAIM, "-o", "json"))[
        "metadata"
    ]
    assert "ownerReferences" not in before

    delete(job)
    text = count(start_job, namespace, "Retain").until_complete()
    assert "rank 0 begins at 1" in text
    assert "rank 1 begins at 1" in text
    after = json.loads(job.kubectl("get", "persistentvolumeclaim", CLAIM, "-o", "json"))["metadata"]
    assert after["uid"] == before["uid"]


@pytest.mark.long
def test_a_claim_is_deleted_with_its_job_if_the_job_says_so(
    start_job: StartJob, namespace: str, make_volume: Callable[[], None]
) -> None:
    make_volume()
    job = count(start_job, namespace, "Delete")
    job.until_complete()
    [owner] = json.loads(job.kubectl("get", "persistentvolumeclaim", CLAIM, "-o", "json"))[
        "metadata"
    ]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("ElasticPyTorchJob", job.name)
    delete(job)
    job.kubectl("wait", "--for=delete", f"persistentvolumeclaim/{CLAIM}", "--timeout=90s")


def test_a_claim_of_another_is_neither_mounted_nor_deleted(
    start_job: StartJob, namespace: str
) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": SPEC,
    }
    run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(claim))
    job = count(start_job, namespace, "Delete")
    words = f"PersistentVolumeClaim {CLAIM} exists and was not created for this job"
    job.until(lambda _: words in job.condition("Running").get("message", ""), "a word on the claim")
    assert job.pods() == []
    delete(job)
    assert (
        json.loads(job.kubectl("get", "persistentvolumeclaim", CLAIM, "-o", "json"))[
            "metadata"
        ].get("deletionTimestamp")
        is None
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({**SPEC, "accessModes": []}, "spec.accessModes: Required value"),
        ({**SPEC, "storageClass": "fast"}, 'unknown field "spec.storageClass"'),
    ],
)
def test_a_claim_that_cannot_be_created_fails_the_job_with_the_reason(
    start_job: StartJob, spec: dict[str, Any], words: str
) -> None:
    job = start_job(sharedVolumeClaims=[{"metadata": {"name": "data"}, "spec": spec}])
    job.until(lambda status: status.get("state") == "Failed", "the job's failure", 60)
    assert job.condition("Failed")["reason"] == "InvalidTemplate"
    assert "spec.sharedVolumeClaims cannot make a claim" in job.condition("Failed")["message"]
    assert words in job.condition("Failed")["message"]


@pytest.mark.long
def test_shared_memory_has_the_size_that_the_job_asks_for_and_holds_what_data_loaders_pass(
    start_job: StartJob,
) -> None:
    job = start_job(script=READER, replicas=1, sharedMemorySize="96Mi")
    text = job.until_complete()
    assert "shared memory: 96 MiB" in text
    assert "read 72 MiB" in text
