"""What a job says of its quota, and the conditions of a job that may not run."""

from dataclasses import replace

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.conditions import Condition, find_condition, is_true
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.planning.queueing.quota import Quota, QuotaLack
from elastic_pytorch_operator.spec.job import Job

UNSUPPORTED = (
    f"has the label {kueue.LABEL_QUEUE}, and this operator does not ask Kueue for quota: "
    "set kueue.enabled in the operator's chart, or remove the label"
)
UNANSWERED = "Kueue has not processed it yet"
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
    """Why not all wanted workers may run, to follow the job's name; empty: they may."""
    queue, base = quota.queue, quota.base
    waits = f"waits for quota in queue {queue}"
    match quota.lack:
        case QuotaLack.UNSUPPORTED:
            return UNSUPPORTED
        case QuotaLack.NO_WORKLOAD:
            return f"{waits}: it has no Workload yet"
        case QuotaLack.NO_QUEUE:
            return (
                f"leaves queue {queue}: it returns its quota when its pods are gone, "
                "and then starts without a queue"
            )
        case QuotaLack.OTHER_QUEUE if base:
            return (
                f"leaves queue {base.queue} for queue {queue}: "
                "it returns its quota when its pods are gone"
            )
        case QuotaLack.OTHER_TEMPLATE:
            return (
                f"returns the quota of its former template to queue {queue} "
                "when its pods are gone, and then asks for its own"
            )
        case QuotaLack.DEACTIVATED if base:
            said = base.message(kueue.EVICTED) or "by its spec.active"
            return (
                f"has no quota in queue {queue}: Workload {base.name} is deactivated ({said}); "
                "set its spec.active to true"
            )
        case QuotaLack.EVICTED if base:
            return f"is evicted from queue {queue}: {base.message(kueue.EVICTED)}"
        case QuotaLack.NOT_ADMITTED if base:
            return f"{waits}: {_message(base)}"
        case QuotaLack.EXTRAS:
            messages = (_message(extra) for extra in quota.waiting if not extra.reserves)
            said = next(messages, UNANSWERED)
            more = f"{quota.missing} more {'worker' if quota.missing == 1 else 'workers'}"
            return f"{waits} for {more}: {said}"
    return ""


def explain_eviction(quota: Quota) -> str:
    count = sum(extra.count for extra in quota.evicted)
    said = quota.evicted[0].message(kueue.EVICTED)
    workers = f"{count} {'worker' if count == 1 else 'workers'}"
    return f"Kueue takes back the quota of {workers} in queue {quota.queue}: {said}"


def _message(workload: WorkloadView) -> str:
    if workload.reserves:
        return workload.message(kueue.ADMITTED) or "its admission checks are not passed yet"
    return workload.message(kueue.QUOTA_RESERVED) or UNANSWERED


def _pods_left(observed: Observed) -> str:
    left = len(observed.pods) + len(observed.stores)
    return f"{left} {'pod is' if left == 1 else 'pods are'} left" if left else ""


def held(
    reason: str, why: str, observed: Observed, size: int, waiting: str, refusal: str
) -> list[Condition]:
    """Running, Resizing and Degraded of a job that may not run, though it is not suspended."""
    text = "; ".join(filter(None, (why, waiting, _pods_left(observed), refusal)))
    rests = "the job may not run; see condition Running"
    running = Condition(names.RUNNING, False, reason, text)
    if size:
        text = f"{size} workers train until they have saved; {text}"
        running = Condition(names.RUNNING, True, names.ROUND_RUNNING, text)
    resizing = Condition(names.RESIZING, False, reason, rests)
    return [running, resizing, replace(resizing, type=names.DEGRADED)]


def suspended(
    job: Job, observed: Observed, size: int, waiting: str, refusal: str, unsaved: str
) -> list[Condition]:
    """Only without quota is the job suspended: until then, fields for its pods may not change."""
    left = _pods_left(observed)
    reserves = any(w.reserves and not w.is_true(kueue.FINISHED) for w in observed.workloads or ())
    stays = left or reserves
    reason = names.SUSPENDING if stays else names.REFUSED if refusal else names.JOB_SUSPENDED
    if job.problem:
        reason, refusal = names.SUSPENDING if stays else names.INVALID_SPEC, job.problem
    does = "its quota is not returned yet" if reserves else "nothing runs"
    does = f"spec.suspend is true: {waiting or left or does}"
    text = "; ".join(filter(None, (does, refusal, "" if left else unsaved)))
    rests = names.SUSPENDING if stays else names.JOB_SUSPENDED
    running, resizing, degraded = (
        Condition(type_, False, rests, "the job is suspended")
        for type_ in (names.RUNNING, names.RESIZING, names.DEGRADED)
    )
    if size:
        words = f"{size} workers train until the job is suspended"
        running = Condition(names.RUNNING, True, names.ROUND_RUNNING, words)
    return [running, resizing, degraded, Condition(names.SUSPENDED, not stays, reason, text)]


def not_suspended(job: Job) -> Condition:
    before = find_condition(job.status, names.SUSPENDED).get("reason", names.NOT_SUSPENDED)
    reason = before if before == names.NOT_SUSPENDED else names.JOB_RESUMED
    return Condition(names.SUSPENDED, False, reason, "the job is not suspended")


def as_before(job: Job) -> Condition:
    """A job that was suspended is not resumed by an invalid spec."""
    if not is_true(job.status, names.SUSPENDED):
        return not_suspended(job)
    before = find_condition(job.status, names.SUSPENDED)
    return Condition(names.SUSPENDED, True, str(before.get("reason")), str(before.get("message")))
