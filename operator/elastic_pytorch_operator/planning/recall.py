"""What a new leader knows of a job's past: what its status says."""

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.model.failure import recorded_cause
from elastic_pytorch_operator.model.operator_state import read_operator_state
from elastic_pytorch_operator.planning.failures.budget import Budget, backoff_seconds
from elastic_pytorch_operator.planning.failures.group_restart import group_restarts
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.reporting.interruption import recall_interruption
from elastic_pytorch_operator.planning.reporting.status_writes import Written
from elastic_pytorch_operator.planning.reporting.stragglers import read_stragglers
from elastic_pytorch_operator.planning.workers.schedule_timeout import ScheduleWait, pause_seconds
from elastic_pytorch_operator.spec.job import Job


def recall(job: Job, now: float, time: str) -> Memory:
    """The memory of a job that this operator has not planned before.

    Args:
        job: with its status.
        now: monotonic seconds.
        time: the same, RFC 3339.
    """
    progress, failures = job.status.get("progress") or {}, int(job.status.get("failures", 0))
    running = find_condition(job.status, names.RUNNING) or {}
    backing_off = running.get("status") == "False" and running.get("reason") == names.BACKING_OFF
    state = read_operator_state(job.status)
    timeouts, step = state.schedule_timeouts, int(progress.get("step", 0))
    paused = timeouts > 0 and running.get("reason") == names.SCHEDULE_TIMEOUT
    # Failures that a rule keeps from counting are not in the status: a pause means that there were two in a row.
    in_a_row = max(failures, 2 if backing_off else 0)
    return Memory(
        schedule=ScheduleWait(
            timeouts, retry_at=now + pause_seconds(job.uid, timeouts) if paused else 0.0, generation=job.generation
        ),
        budget=Budget(
            failures=failures,
            total=int(job.status.get("totalFailures", 0)),
            in_a_row=in_a_row,
            # The agents of a group that backs off still report the failure that has been counted.
            counted_round=int(job.status.get("round", 0)) if backing_off and not job.stock else 0,
            step=step,
            checkpoint_step=int(progress.get("checkpointStep", 0)),
            backoff_until=now + backoff_seconds(in_a_row) if backing_off else 0.0,
            last=recorded_cause(job.status) if backing_off else None,
            group_restarts=group_restarts(job),
        ),
        interruption=recall_interruption(state.interruption, now, time),
        unled_step=step if step and job.status.get("worldSize") else None,
        stragglers=read_stragglers(job.status),
        written=Written(at=now),  # by another leader, perhaps: its progress need not be written at once
    )
