"""Which Workloads of a job Kueue is told to be ready. It evicts one that is not ready for too long (`waitForPodsReady`).

Workers are counted, not matched with Workloads: with a worker lost, the last extra is not ready. If the loss lasts, Kueue evicts that
extra, and the job goes on with the others.
"""

from collections.abc import Iterable

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.model.actions import PatchWorkload
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.planning.queueing.conditions import set_condition


def report_readiness(usable: Iterable[WorkloadView], ready: int, time: str) -> list[PatchWorkload]:
    """Returns what changes of the condition PodsReady.

    Args:
        usable: the admitted Workloads, the base first.
        ready: how many workers are ready.
        time: RFC 3339.
    """
    patches, needed = [], 0
    for workload in usable:
        needed += workload.granted
        before = workload.by_type.get(kueue.PODS_READY, {})
        was_ready = before.get("status") == "True"
        if was_ready == (ready >= needed) and before:
            continue
        if ready >= needed:
            recovered = before.get("reason") in (kueue.WAIT_FOR_RECOVERY, kueue.RECOVERED)
            reason, message = kueue.RECOVERED if recovered else kueue.STARTED, "its workers are ready"
        else:
            reason, message = kueue.WAIT_FOR_RECOVERY if was_ready else kueue.WAIT_FOR_START, "not all its workers are ready"
        patches.append(set_condition(workload, kueue.PODS_READY, ready >= needed, reason, message, time))
    return patches
