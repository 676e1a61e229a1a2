"""Workloads that others have made for a job."""

import time
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.model.actions import AdoptWorkload
from elastic_pytorch_operator.reconcile.workload_writer import AdoptionError, WorkloadWriter
from elastic_pytorch_operator.spec.queue import Queue

from tests.operator.builders import a_queued_job
from tests.operator.kueue_stand_in import KueueCluster

JOB = replace(a_queued_job(), queue=Queue("team", prebuilt="made"))


async def prepared(queue: str = "team", **metadata: Any) -> tuple[KueueCluster, Cache, WorkloadWriter]:
    """A cluster with a Workload `made`, as MultiKueue copies it: with labels of another cluster, and without an owner."""
    cluster, cache = KueueCluster(6), Cache()
    pods = {"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "pytorch"}]}}}
    made = {"name": "made", "namespace": "default", "labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"}, **metadata}
    await cluster.create_workload({"metadata": made, "spec": {"queueName": queue, "priority": 0, "podSets": [pods]}})
    return cluster, cache, WorkloadWriter(cluster, cache, time.monotonic)


async def test_a_workload_that_is_there_becomes_the_base() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "it", "uid": "uid-it"}
    cluster, cache, writer = await prepared(ownerReferences=[other])
    await writer.write(JOB, AdoptWorkload("made"))
    metadata = cluster.workload("made")["metadata"]
    kept, owner = metadata["ownerReferences"]
    assert kept == other
    assert (owner["uid"], owner["controller"]) == (JOB.uid, True)
    assert metadata["labels"]["kueue.x-k8s.io/job-uid"] == JOB.uid
    assert metadata["labels"]["kueue.x-k8s.io/multikueue-origin"] == "multikueue"
    cache.apply(names.KIND, {"metadata": {"name": JOB.key.name, "namespace": "default", "uid": JOB.uid}, "spec": {}}, 0.0)
    (view,) = cache.workloads_of(JOB.uid)
    assert (view.name, view.number, view.count) == ("made", 0, 2)

    await writer.write(JOB, AdoptWorkload("made"))
    assert len(cluster.workload("made")["metadata"]["ownerReferences"]) == 2, "once more, as after a write that was not seen"


@pytest.mark.parametrize(
    ("name", "queue", "owners", "words"),
    [
        ("none", "team", [], "Workload none, which kueue.x-k8s.io/prebuilt-workload-name names, is not there: create it"),
        (
            "made",
            "team",
            [{"kind": "Job", "name": "other", "uid": "x", "controller": True}],
            "Workload made belongs to Job other: name another one in kueue.x-k8s.io/prebuilt-workload-name",
        ),
        ("made", "a", [], "Workload made is in queue a, and the job in team: make kueue.x-k8s.io/queue-name the same"),
    ],
)
async def test_a_workload_that_cannot_be_the_base_is_refused(
    name: str, queue: str, owners: list[dict[str, Any]], words: str
) -> None:
    cluster, _, writer = await prepared(queue, ownerReferences=owners)
    before = cluster.workload("made")
    with pytest.raises(AdoptionError) as refused:
        await writer.write(JOB, AdoptWorkload(name))
    assert (refused.value.words, refused.value.judgement) == (words, Judgement.REFUSED)
    assert cluster.workload("made") == before
