"""`activeDeadlineSeconds`: since when a job is active, and until when it may be."""

from elastic_pytorch_operator.api.timestamps import seconds_between
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.spec.job import Job


def active_since(job: Job, observed: Observed, known: float | None) -> float | None:
    """When the job began, monotonic seconds: as remembered, or as the status says if this operator has just started."""
    if job.suspend:
        return None
    if known is not None:
        return known
    return observed.now - seconds_between(str(job.status.get("startTime", observed.time)), observed.time)


def deadline_at(job: Job, active_since: float | None) -> float | None:
    """When `activeDeadlineSeconds` are over, monotonic seconds; None: never."""
    if job.active_deadline_seconds is None or active_since is None:
        return None
    return active_since + job.active_deadline_seconds
