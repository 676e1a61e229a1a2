"""Asks the API server beforehand whether each fault may be done: by dry runs, which change nothing."""

from collections.abc import Sequence

from elastic_pytorch_client.cluster import Cluster
from elastic_pytorch_client.drill.faults import Fault, PlannedFault
from elastic_pytorch_client.errors import EpjError


def check(cluster: Cluster, namespace: str, job: str, planned: Sequence[PlannedFault]) -> list[PlannedFault]:
    """The faults; those that the API server would refuse are left out, with its reason: a permission, or a PodDisruptionBudget."""
    return [fault if fault.skipped else fault.skip(_objection(cluster, namespace, job, fault)) for fault in planned]


def _objection(cluster: Cluster, namespace: str, job: str, planned: PlannedFault) -> str:
    try:
        match planned.fault:
            case Fault.PROCESS:
                return _objection_to_exec(cluster, namespace, planned)
            case Fault.POD:
                for target in planned.targets:
                    cluster.delete_pod(namespace, target.pod, target.uid, dry_run=True)
            case Fault.NODE:
                if (cluster.get_node(planned.node).get("spec") or {}).get("unschedulable"):
                    return f"node {planned.node} is cordoned already"
                cluster.cordon_node(planned.node, cordoned=True, dry_run=True)
                for target in planned.targets:
                    cluster.evict_pod(namespace, target.pod, target.uid, dry_run=True)
            case Fault.SCALE:
                cluster.scale_job(namespace, job, planned.replicas, dry_run=True)
    except EpjError as error:
        return str(error)
    return ""


def _objection_to_exec(cluster: Cluster, namespace: str, planned: PlannedFault) -> str:
    """A command in a pod has no dry run. The API server asks for `get` on a WebSocket, from Kubernetes 1.35 on for `create`, too."""
    for verb in ("get", "create"):
        for target in planned.targets:
            if not cluster.may(verb, "pods/exec", namespace, target.pod):
                return f"you may not run commands in pods: allow the verb {verb} on pods/exec in namespace {namespace}"
    return ""
