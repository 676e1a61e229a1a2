"""The PodGroup of a job: its minimum of workers gets a place together, or none does. Pure."""

import math

from elastic_pytorch_operator.api import gang_schedulers
from elastic_pytorch_operator.api.gang_schedulers import GangScheduler
from elastic_pytorch_operator.api.manifest import MutableManifest
from elastic_pytorch_operator.manifests.worker_pod import building, owned
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.resources import pod_requests

MAX_QUANTITY = 2.0**63  # where apimachinery's `resource.Quantity` ends


@building("PodGroup")
def pod_group(job: Job, gang: GangScheduler) -> MutableManifest:
    return {
        "apiVersion": gang.api_version,
        "kind": gang_schedulers.KIND,
        "metadata": owned(job, job.key.name),
        "spec": _spec(job, gang),
    }


def _spec(job: Job, gang: GangScheduler) -> MutableManifest:
    template = job.template["spec"]
    if not gang.built_in:
        requests = {
            name: _quantity(amount * job.minimum)
            for name, amount in pod_requests(template).items()
            if amount
        }
        return {"minMember": job.minimum, "minResources": requests}
    spec: MutableManifest = {"schedulingPolicy": {"gang": {"minCount": job.minimum}}}
    if template.get("priorityClassName"):
        spec["priorityClassName"] = template["priorityClassName"]
    return spec


def _quantity(amount: float) -> str:
    thousandths = math.ceil(round(min(amount, MAX_QUANTITY) * 1000, 3))
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)
