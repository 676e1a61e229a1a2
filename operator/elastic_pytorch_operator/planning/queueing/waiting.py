"""What a job waits for in its queue, for people. Kueue's own message says what is missing."""

from collections.abc import Sequence

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.model.workload import WorkloadView

UNSUPPORTED = (
    f"has the label {kueue.LABEL_QUEUE}, and this operator does not ask Kueue for quota: "
    "set kueue.enabled in the operator's chart, or remove the label"
)
UNANSWERED = "Kueue has not looked at it yet"


def explain_base(queue: str, base: WorkloadView | None) -> str:
    """Why no worker of a job may run.

    Args:
        queue: the name of the job's queue.
        base: the Workload for its minimum; None: there is none.
    """
    if base is None or base.deleting:
        return f"waits for quota in queue {queue}: it has no Workload yet"
    if base.queue != queue:
        return f"leaves queue {base.queue} for queue {queue}: its quota is given back when its pods are gone"
    if not base.active:
        said = base.message(kueue.EVICTED) or "by its spec.active"
        return f"has no quota in queue {queue}: Workload {base.name} is deactivated ({said}); set its spec.active to true"
    if base.evicted and base.reserves:
        return f"is evicted from queue {queue}: {base.message(kueue.EVICTED)}"
    return f"waits for quota in queue {queue}: {_message(base)}"


def explain_leave(queue: str) -> str:
    """Why no worker of a job may run whose queue label was removed."""
    return f"leaves queue {queue}: its quota is given back when its pods are gone, then it starts without a queue"


def explain_extras(queue: str, missing: int, waiting: Sequence[WorkloadView]) -> str:
    """Why not all wanted workers of a job may run.

    Args:
        queue: the name of the job's queue.
        missing: how many workers.
        waiting: the extras by which none may run.
    """
    said = next((_message(extra) for extra in waiting if not extra.reserves), UNANSWERED)
    return f"waits for quota in queue {queue} for {missing} more {'worker' if missing == 1 else 'workers'}: {said}"


def explain_eviction(queue: str, evicted: Sequence[WorkloadView]) -> str:
    """Why workers of a job have to leave; empty: none has to.

    Args:
        queue: the name of the job's queue.
        evicted: the extras that Kueue wants back.
    """
    if not evicted:
        return ""
    count = sum(extra.count for extra in evicted)
    said = evicted[0].message(kueue.EVICTED)
    return f"Kueue takes back the quota of {count} {'worker' if count == 1 else 'workers'} in queue {queue}: {said}"


def _message(workload: WorkloadView) -> str:
    if workload.reserves:
        return workload.message(kueue.ADMITTED) or "its admission checks are not passed yet"
    return workload.message(kueue.QUOTA_RESERVED) or UNANSWERED
