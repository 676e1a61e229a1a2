"""What a job says of its quota, in words and in conditions.

Kueue's own message says what is missing.

The group of a job that has no quota trains on until it has saved, and its pods take time to stop.
"""

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.conditions import Condition
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.planning.queueing.quota import Quota, QuotaLack

UNSUPPORTED = (
    f"has the label {kueue.LABEL_QUEUE}, and this operator does not ask Kueue for quota: "
    "set kueue.enabled in the operator's chart, or remove the label"
)
UNANSWERED = "Kueue has not processed it yet"
# The reasons of a job that has no quota.
WITHOUT_QUOTA = (
    names.QUOTA_REQUESTED,
    names.WAITING_FOR_QUOTA,
    names.EVICTED,
    names.KUEUE_DISABLED,
    names.LEAVING_QUEUE,
)


def reason_of(quota: Quota) -> str:
    if quota.lack is QuotaLack.UNSUPPORTED:
        return names.KUEUE_DISABLED
    if quota.lack in (QuotaLack.OTHER_QUEUE, QuotaLack.OTHER_TEMPLATE, QuotaLack.NO_QUEUE):
        return names.LEAVING_QUEUE
    if quota.size or (quota.base is not None and quota.base.is_false(kueue.QUOTA_RESERVED)):
        return names.WAITING_FOR_QUOTA
    return names.EVICTED if quota.base is not None and quota.base.evicted else names.QUOTA_REQUESTED


def explain_lack(quota: Quota) -> str:
    """Why not all wanted workers of a job may run, to follow its name in a sentence; empty: they may."""
    queue, base = quota.queue, quota.base
    waits = f"waits for quota in queue {queue}"
    match quota.lack:
        case QuotaLack.UNSUPPORTED:
            return UNSUPPORTED
        case QuotaLack.NO_WORKLOAD:
            return f"{waits}: it has no Workload yet"
        case QuotaLack.NO_QUEUE:
            return f"leaves queue {queue}: it returns its quota when its pods are gone, and then starts without a queue"
        case QuotaLack.OTHER_QUEUE if base:
            return f"leaves queue {base.queue} for queue {queue}: it returns its quota when its pods are gone"
        case QuotaLack.OTHER_TEMPLATE:
            return f"returns the quota of its former template to queue {queue} when its pods are gone, and then asks for its own"
        case QuotaLack.DEACTIVATED if base:
            said = base.message(kueue.EVICTED) or "by its spec.active"
            return f"has no quota in queue {queue}: Workload {base.name} is deactivated ({said}); set its spec.active to true"
        case QuotaLack.EVICTED if base:
            return f"is evicted from queue {queue}: {base.message(kueue.EVICTED)}"
        case QuotaLack.NOT_ADMITTED if base:
            return f"{waits}: {_message(base)}"
        case QuotaLack.EXTRAS:
            said = next(
                (_message(extra) for extra in quota.waiting if not extra.reserves), UNANSWERED
            )
            return f"{waits} for {quota.missing} more {'worker' if quota.missing == 1 else 'workers'}: {said}"
    return ""


def explain_eviction(quota: Quota) -> str:
    count = sum(extra.count for extra in quota.evicted)
    said = quota.evicted[0].message(kueue.EVICTED)
    return f"Kueue takes back the quota of {count} {'worker' if count == 1 else 'workers'} in queue {quota.queue}: {said}"


def _message(workload: WorkloadView) -> str:
    if workload.reserves:
        return workload.message(kueue.ADMITTED) or "its admission checks are not passed yet"
    return workload.message(kueue.QUOTA_RESERVED) or UNANSWERED


def held(
    reason: str, why: str, observed: Observed, size: int, waiting: str, refusal: str
) -> list[Condition]:
    """Returns Running, Resizing and Degraded of a job that is not suspended and may not run.

    Args:
        waiting: which checkpoint the change waits for; empty: none.
    """
    left = len(observed.pods) + len(observed.stores)
    pods = f"{left} {'pod is' if left == 1 else 'pods are'} left" if left else ""
    text = "; ".join(filter(None, (why, waiting, pods, refusal)))
    rests = "the job may not run; see condition Running"
    running = Condition(names.RUNNING, False, reason, text)
    if size:
        running = Condition(
            names.RUNNING,
            True,
            names.ROUND_RUNNING,
            f"{size} workers train until they have saved; {text}",
        )
    return [
        running,
        Condition(names.RESIZING, False, reason, rests),
        Condition(names.DEGRADED, False, reason, rests),
    ]
