from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.api.gang_schedulers import COSCHEDULING
from elastic_pytorch_operator.manifests.pod_group import pod_group
from elastic_pytorch_operator.manifests.stock_pods import stock_worker_pod, store_pod
from elastic_pytorch_operator.manifests.worker_pod import UnbuildableError, volume_claim
from elastic_pytorch_operator.manifests.workload import workload
from elastic_pytorch_operator.model.actions import CreateWorkload
from elastic_pytorch_operator.planning.completion import decide_ending
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.volumes import ClaimTemplate

from tests.operator.builders import a_queued_job, a_target, a_worker_pod, observed

BROKEN = replace(a_queued_job(), template={"spec": {"containers": 7}}, claims=(ClaimTemplate("data", 7),))


@pytest.mark.parametrize(
    ("build", "kind", "cause"),
    [
        (a_worker_pod, "Pod", "spec.template cannot make a pod"),
        (lambda job: stock_worker_pod(job, 0, "x", 1), "Pod", "spec.template cannot make a pod"),
        (lambda job: store_pod(job, "x", 1), "Pod", "spec.template cannot make a pod"),
        (lambda job: pod_group(job, COSCHEDULING), "PodGroup", "spec.template cannot make a pod"),
        (lambda job: workload(job, CreateWorkload(0, 2), {}, {}), "Workload", "spec.template cannot make a pod"),
        (
            lambda job: volume_claim(job, job.claims[0]),
            "PersistentVolumeClaim",
            "spec.sharedVolumeClaims cannot make a claim",
        ),
    ],
)
def test_failure_names_what_is_built_and_the_field_that_it_is_built_of(
    build: Callable[[Job], Any], kind: str, cause: str
) -> None:
    with pytest.raises(UnbuildableError, match=f"^{kind}: the operator cannot build it: ") as failure:
        build(BROKEN)
    ending, _ = decide_ending(BROKEN, a_target(BROKEN), observed(), [], Budget(), invalid=str(failure.value))
    assert ending is not None
    assert (ending.complete, ending.reason) == (False, "InvalidTemplate")
    assert ending.message == f"{cause}: {failure.value}"
