"""Counts what there is, for the metrics. Cheap enough to be done anew for each scrape: it reads statuses, it judges nothing."""

from collections import Counter

from elastic_pytorch_operator.conditions import has_ended
from elastic_pytorch_operator.job import JobKey
from elastic_pytorch_operator.metrics import Census
from elastic_pytorch_operator.roster import Roster
from elastic_pytorch_operator.store import Store
from elastic_pytorch_operator.workqueue import WorkQueue


def take_census(store: Store, roster: Roster, queue: WorkQueue[JobKey], *, leading: bool) -> Census:
    """What is known at this moment."""
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
        agents=roster.agent_count,
        polls=roster.open_polls,
        queued=len(queue),
        longest_reconcile_seconds=queue.longest_work_seconds,
    )
