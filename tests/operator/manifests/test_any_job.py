"""Whatever a tenant writes, a job is read or refused, and what is read can be built."""

import json
from collections.abc import Iterator
from typing import Any

from elastic_pytorch_operator.api.gang_schedulers import GANG_SCHEDULERS
from elastic_pytorch_operator.manifests.agent_injection import AgentImage
from elastic_pytorch_operator.manifests.pod_group import pod_group
from elastic_pytorch_operator.manifests.stock_pods import store_pod
from elastic_pytorch_operator.manifests.worker_pod import headless_service, volume_claim
from elastic_pytorch_operator.manifests.workload import (
    PlacementConflict,
    base_priority,
    place_pod,
    workload,
)
from elastic_pytorch_operator.model.actions import CreateWorkload
from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.model.workload import Admission, Grant
from elastic_pytorch_operator.planning.nodes.placement import nodes_for
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import Job, parse_job
from hypothesis import given, settings

from tests.hypothesis_examples import examples
from tests.operator.any_jobs import TEMPLATE, any_jobs
from tests.operator.builders import a_manifest, a_stock_pod, a_worker_pod

IMAGE = AgentImage("agent")
GRANT = Grant("lm-base", "team", Admission("shared", 2, ("flavor",), topology=True))
FLAVORS = [{"spec": {"nodeLabels": {"pool": "a"}, "tolerations": [{"key": "spot"}]}}]
NODE = NodeView("n", labels={"pool": "7", "zone": "b"}, allocatable={"cpu": "4", "memory": "8Gi"})


def everything(job: Job) -> Iterator[dict[str, Any]]:
    """All objects that are made for a job."""
    yield headless_service(job)
    yield from (volume_claim(job, template) for template in job.claims)
    pod = a_stock_pod(job) if job.stock else a_worker_pod(job, 0, agent_image=IMAGE)
    yield pod
    yield store_pod(job, "x", 1)
    yield a_worker_pod(job, 1, ["node-0"])
    yield a_worker_pod(job, 1, ["node-0"], IMAGE, unwanted=("node-1",))
    yield from (pod_group(job, gang) for gang in GANG_SCHEDULERS.values())
    if job.queue is not None:
        for number in (0, 1):
            priority = base_priority(job, [{"metadata": {"name": "high"}, "value": 7}])
            yield workload(job, CreateWorkload(number, 2, ("flavor",)), priority, {"pool": "a"})
    try:
        place_pod(pod, GRANT, FLAVORS)
    except PlacementConflict:
        return
    yield pod


@settings(max_examples=examples(600))
@given(any_jobs())
def test_a_job_is_read_or_refused_and_what_is_read_can_be_built(manifest: dict[str, Any]) -> None:
    try:
        job = parse_job(manifest)
    except InvalidJob as refused:
        assert refused.path.startswith(("spec", "metadata"))
        return
    for built in everything(job):
        json.dumps(built)
    list(nodes_for([NODE], job.template["spec"]))


def test_the_job_that_the_property_starts_from_is_read() -> None:
    assert len(list(everything(parse_job(a_manifest(template=TEMPLATE))))) >= 8
