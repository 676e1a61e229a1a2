"""Changes a Workload's conditions by merge patches, each with all conditions that Kueue has set.

Kueue evicts a Workload that is not ready for too long (`waitForPodsReady`). As workers are counted,
not matched with Workloads, the loss of any worker costs the last extra.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.conditions import transition_time
from elastic_pytorch_operator.model.actions import PatchWorkload
from elastic_pytorch_operator.model.workload import BASE, WorkloadView

MAX_MESSAGE = 32768  # characters, by the API server's schema of a condition
# After an eviction for these reasons, Kueue itself requeues.
REQUEUED_AT_ONCE = (kueue.PREEMPTED, kueue.NODE_FAILURES)


def release(workload: WorkloadView, time: str) -> PatchWorkload:
    """Gives the quota of an evicted Workload back, and has Kueue queue it again.

    Kueue's own jobs do so when their pods are gone (pkg/controller/jobframework/reconciler.go, step
    6). Kueue clears `Evicted` when it reserves quota again. `PodsReady` begins again, or the old
    date would time a later wait for recovery.
    """
    why = workload.message(kueue.EVICTED)
    reason = workload.reason(kueue.EVICTED)
    changes = [
        (kueue.QUOTA_RESERVED, False, kueue.PENDING, why),
        (kueue.ADMITTED, False, kueue.NO_RESERVATION, "The workload has no reservation"),
        (kueue.PODS_READY, False, kueue.WAIT_FOR_START, "the workers are gone"),
        (kueue.REQUEUED, reason in REQUEUED_AT_ONCE, reason, why),
    ]
    status = {"admission": None, "conditions": _merged(workload, changes, time)}
    return PatchWorkload(workload.name, workload.version, status=status)


def set_condition(
    workload: WorkloadView, type_: str, true: bool, reason: str, message: str, time: str
) -> PatchWorkload:
    conditions = _merged(workload, [(type_, true, reason, message)], time)
    return PatchWorkload(workload.name, workload.version, status={"conditions": conditions})


def _merged(
    workload: WorkloadView, changes: list[tuple[str, bool, str, str]], time: str
) -> list[Mapping[str, Any]]:
    merged = dict(workload.conditions)
    for type_, true, reason, message in changes:
        before, status = merged.get(type_, {}), "True" if true else "False"
        merged[type_] = {
            **before,
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message[:MAX_MESSAGE],
            "lastTransitionTime": transition_time(before, status, time),
        }
    return list(merged.values())


def report_readiness(
    usable: Iterable[WorkloadView], ready: int, time: str, running: Mapping[str, int] | None = None
) -> list[PatchWorkload]:
    """`running` has the pods by the names of their extras; None: workers are counted."""
    patches, needed = [], 0
    for workload in usable:
        needed += workload.granted
        is_ready = ready >= needed
        if running is not None and workload.number != BASE:
            is_ready = running.get(workload.name, 0) >= workload.granted
        before = workload.conditions.get(kueue.PODS_READY, {})
        was_ready = before.get("status") == "True"
        if was_ready == is_ready and before:
            continue
        if is_ready:
            recovered = before.get("reason") in (kueue.WAIT_FOR_RECOVERY, kueue.RECOVERED)
            reason = kueue.RECOVERED if recovered else kueue.STARTED
        else:
            reason = kueue.WAIT_FOR_RECOVERY if was_ready else kueue.WAIT_FOR_START
        message = f"{'its' if is_ready else 'not all its'} workers are ready"
        patches.append(set_condition(workload, kueue.PODS_READY, is_ready, reason, message, time))
    return patches
