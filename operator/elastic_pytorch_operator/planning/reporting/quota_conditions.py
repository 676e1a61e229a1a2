"""The conditions of a job that has no quota. Its group trains on until it has saved, and its pods take time to stop."""

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.conditions import Condition
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.queueing.quota import Quota

# The reasons of a job that has no quota.
WITHOUT_QUOTA = (names.QUOTA_REQUESTED, names.WAITING_FOR_QUOTA, names.EVICTED, names.KUEUE_DISABLED, names.LEAVING_QUEUE)


def reason_of(quota: Quota) -> str:
    """The reason with which conditions say that quota is missing."""
    if not quota.supported:
        return names.KUEUE_DISABLED
    if quota.leaves:
        return names.LEAVING_QUEUE
    if quota.size or (quota.base is not None and quota.base.is_false(kueue.QUOTA_RESERVED)):
        return names.WAITING_FOR_QUOTA
    return names.EVICTED if quota.base is not None and quota.base.evicted else names.QUOTA_REQUESTED


def without_quota(quota: Quota, observed: Observed, size: int, waiting: str, refusal: str) -> list[Condition]:
    """Returns Running, Resizing and Degraded.

    Args:
        quota: says what the job waits for.
        observed: its pods.
        size: of the group that still trains.
        waiting: which checkpoint the change waits for; empty: none.
        refusal: what came of the writes that the API server does not accept.
    """
    reason, left = reason_of(quota), len(observed.pods) + len(observed.stores)
    pods = f"{left} {'pod is' if left == 1 else 'pods are'} left" if left else ""
    text = "; ".join(filter(None, (quota.text, waiting, pods, refusal)))
    rests = "the job has no quota, see condition Running"
    running = Condition(names.RUNNING, False, reason, text)
    if size:
        running = Condition(names.RUNNING, True, names.ROUND_RUNNING, f"{size} workers train until they have saved; {text}")
    return [running, Condition(names.RESIZING, False, reason, rests), Condition(names.DEGRADED, False, reason, rests)]
