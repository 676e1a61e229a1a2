import sys
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_client import (
    EpjError,
    Job,
    JobFailed,
    NoSuchJob,
    Refused,
    TimedOut,
    Unreachable,
)
from elastic_pytorch_client.manifest import build_manifest, read_manifest

from tests.plugin.plugin_console import FakeTime
from tests.plugin.recorded_cluster import BREAK, RecordedCluster, recorded

MANIFEST = """
apiVersion: v1
kind: ConfigMap
---
apiVersion: elasticpytorch.dev/v1alpha1
kind: ElasticPyTorchJob
metadata: {name: mine, namespace: team}
spec: {replicas: 2, template: {spec: {containers: [{name: pytorch, image: torch}]}}}
"""


def at_step(step: int, *, ended: str = "") -> dict[str, Any]:
    job = recorded("young")["job"]
    job["metadata"]["resourceVersion"] = str(100_000_000 + step)
    job["status"]["progress"]["step"] = step
    if ended:
        message = "rank 0 failed" if ended == "Failed" else "done"
        reason = "TooManyFailures" if ended == "Failed" else "WorkersSucceeded"
        job["status"]["conditions"] = [
            {"type": ended, "status": "True", "reason": reason, "message": message}
        ]
    return job


def sdk_job(cluster: RecordedCluster, time: FakeTime | None = None) -> Job:
    return Job("char-lm", "team", cluster, clock=time.clock if time else None)


def test_made_from_arguments() -> None:
    cluster = RecordedCluster()
    args, policy = ["train.py", "--lr", "0.1"], {"failurePolicy": {"maxFailures": 1}}
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    job = Job.create(
        cluster=cluster,
        name="mine",
        image="my-image",
        args=args,
        replicas=4,
        min_replicas=2,
        max_replicas=8,
        env={"A": "b"},
        resources=resources,
        spec=policy,
    )
    container = {
        "name": "pytorch",
        "image": "my-image",
        "args": args,
        "env": [{"name": "A", "value": "b"}],
        "resources": resources,
    }
    sizes = {"replicas": 4, "minReplicas": 2, "maxReplicas": 8}
    assert job.manifest["spec"] == {
        **sizes,
        **policy,
        "template": {"spec": {"containers": [container]}},
    }


def test_the_pod_of_a_manifest_may_hold_more() -> None:
    pod = {
        "volumes": [{"name": "v"}],
        "containers": [{"name": "side"}, {"name": "pytorch", "env": [{"name": "X", "value": "1"}]}],
    }
    spec = build_manifest("j", image="i", args=[], env={"Y": "2"}, pod=pod)["spec"]["template"][
        "spec"
    ]
    assert spec["volumes"] == [{"name": "v"}]
    assert [container["name"] for container in spec["containers"]] == ["side", "pytorch"]
    assert [variable["name"] for variable in spec["containers"][1]["env"]] == ["X", "Y"]


def test_made_from_yaml_a_file_or_a_dict(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(MANIFEST)
    for source in (MANIFEST, file, read_manifest(MANIFEST)):
        job = Job.create(source, cluster=RecordedCluster())
        assert (job.name, job.namespace) == ("mine", "team")


@pytest.mark.parametrize(
    "source", ["a: b", "kind: Pod", ": : :", Path("/nowhere/at/all.yaml"), Path(sys.executable)]
)
def test_what_is_no_job_is_refused(source: str | Path) -> None:
    with pytest.raises(Refused):
        Job.create(source, cluster=RecordedCluster())


def test_found_and_listed() -> None:
    cluster = RecordedCluster("young", "failed")
    assert Job.get("char-lm", cluster=cluster).status.world == 3
    assert [job.name for job in Job.list_all(cluster=cluster)] == ["char-lm", "fails"]
    with pytest.raises(NoSuchJob):
        Job.get("nobody", cluster=cluster)


def test_progress_is_each_change_over_broken_connections(fake_time: FakeTime) -> None:
    cluster = RecordedCluster("young")
    cluster.script = [
        at_step(90),
        Unreachable("gone"),
        at_step(95),
        BREAK,
        at_step(99),
        at_step(800, ended="Complete"),
    ]
    steps = [view.progress.step for view in sdk_job(cluster, fake_time).progress()]
    assert steps == [84, 90, 95, 99, 800]
    assert fake_time.now >= 1


def test_wait_until_complete(fake_time: FakeTime) -> None:
    cluster = RecordedCluster("young")
    cluster.script = [at_step(90), at_step(800, ended="Complete")]
    assert sdk_job(cluster, fake_time).wait().progress.step == 800


def test_wait_for_a_job_that_fails(fake_time: FakeTime) -> None:
    cluster = RecordedCluster("young")
    cluster.script = [at_step(90), at_step(91, ended="Failed")]
    with pytest.raises(
        JobFailed, match="char-lm has failed, TooManyFailures: rank 0 failed"
    ) as caught:
        sdk_job(cluster, fake_time).wait()
    assert caught.value.reason == "TooManyFailures"


def test_wait_no_longer_than_told(fake_time: FakeTime) -> None:
    cluster = RecordedCluster("young")
    cluster.script = [Unreachable("gone")] * 4
    with pytest.raises(TimedOut, match="5 s have passed before it had ended"):
        sdk_job(cluster, fake_time).wait(timeout_seconds=5)


def test_wait_for_a_job_that_is_deleted(fake_time: FakeTime) -> None:
    cluster = RecordedCluster("young")
    cluster.script = [Unreachable("gone")]
    fake_time.on_sleep = lambda: cluster.remove("char-lm")
    with pytest.raises(JobFailed, match="has been deleted"):
        sdk_job(cluster, fake_time).wait()


def test_scale_suspend_resume_delete() -> None:
    cluster = RecordedCluster("young")
    job = sdk_job(cluster)
    job.scale(4)
    job.suspend()
    job.resume()
    job.delete(wait=True)
    job.delete()
    assert [call[0] for call in cluster.calls] == ["scale", "patch", "patch", "delete"]
    with pytest.raises(EpjError):
        job.scale(2)


class FinalizingCluster(RecordedCluster):
    """A job that is deleted stays until its finalizer is removed."""

    def remove(self, name: str) -> None:
        """Does nothing yet."""


def test_deletion_of_a_job_that_has_ended_is_waited_for(fake_time: FakeTime) -> None:
    cluster = FinalizingCluster("young")
    cluster.put(at_step(800, ended="Complete"))
    fake_time.on_sleep = lambda: RecordedCluster.remove(cluster, "char-lm")
    sdk_job(cluster, fake_time).delete(wait=True)
    assert fake_time.now > 0


def test_scale_may_wait_for_its_effect(fake_time: FakeTime) -> None:
    cluster = RecordedCluster("whole")
    grown = recorded("whole")["job"]
    grown["metadata"] |= {"generation": 9, "resourceVersion": "100000000"}
    grown["status"]["observedGeneration"] = 9
    cluster.script = [grown]
    sdk_job(cluster, fake_time).scale(4, wait=True, timeout_seconds=5)
    with pytest.raises(TimedOut, match="all its workers trained"):
        cluster.script = [Unreachable("x")] * 5
        sdk_job(cluster, fake_time).scale(3, wait=True, timeout_seconds=5)


def test_logs_and_timeline() -> None:
    cluster = RecordedCluster("young")
    job = sdk_job(cluster)
    name = job.status.members[0].name
    cluster.logs[name] = ["2026-01-01T00:00:00Z hello"]
    assert [line.text for line in job.logs(rank=0, tail_lines=5)] == ["hello"]
    assert [event.reason for event in job.timeline()] == ["FirstRound"]
    assert repr(job) == "Job('char-lm', namespace='team')"


def test_yaml_is_read_as_kubectl_reads_it() -> None:
    text = "kind: ElasticPyTorchJob\nmetadata: {annotations: {day: 2026-01-01, at: 1:30}}\n"
    assert read_manifest(text)["metadata"]["annotations"] == {"day": "2026-01-01", "at": "1:30"}
