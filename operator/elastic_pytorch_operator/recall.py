"""What a new leader remembers of a job: what its status tells of its past."""

from elastic_pytorch_operator import names
from elastic_pytorch_operator.budget import Budget, backoff_seconds
from elastic_pytorch_operator.conditions import find_condition
from elastic_pytorch_operator.failures import recorded_cause
from elastic_pytorch_operator.job import Job
from elastic_pytorch_operator.plan import Memory


def recall(job: Job, now: float) -> Memory:
    """The memory of a job that this operator has not planned before, at a moment in monotonic seconds."""
    progress, failures = job.status.get("progress") or {}, int(job.status.get("failures", 0))
    running = find_condition(job.status, names.RUNNING) or {}
    backing_off = running.get("status") == "False" and running.get("reason") == names.BACKING_OFF
    return Memory(
        budget=Budget(
            failures=failures,
            # The agents of a group that backs off still report the failure that has been counted.
            counted_round=int(job.status.get("round", 0)) if backing_off and not job.stock else 0,
            step=int(progress.get("step", 0)),
            checkpoint_step=int(progress.get("checkpointStep", 0)),
            hold_until=now + backoff_seconds(failures) if backing_off else 0.0,
            last=recorded_cause(job.status) if backing_off else None,
        )
    )
