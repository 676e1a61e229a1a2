"""Counts what there is, for the metrics. Cheap enough to be done for each scrape: it reads statuses, it judges nothing."""

from collections import Counter

from elastic_pytorch_operator.conditions import has_ended
from elastic_pytorch_operator.job import JobKey
from elastic_pytorch_operator.metrics import Census
from elastic_pytorch_operator.roster import Roster
from elastic_pytorch_operator.store import Store
from elastic_pytorch_operator.workqueue import WorkQueue

CONNECTED_SECONDS = 10.0  # agents speak every second, or every few of them where there are thousands


def take_census(store: Store, roster: Roster, queue: WorkQueue[JobKey], *, leading: bool, now: float) -> Census:
    """What is known at this moment, in monotonic seconds."""
    jobs: Counter[str] = Counter()
    workers: Counter[str] = Counter()
    for key in store.keys:
        status = store.job_manifest(key).get("status") or {}
        jobs[status.get("state") or "Pending"] += 1
        if not has_ended(status):
            workers.update(worker.get("state", "Starting") for worker in status.get("workers") or ())
    return Census(
        leading=leading,
        jobs=jobs,
        workers=workers,
        agents=roster.heard_since(now - CONNECTED_SECONDS),
        polls=roster.open_polls,
        queued=len(queue),
        longest_reconcile_seconds=queue.longest_work_seconds,
    )
