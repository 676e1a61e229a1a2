"""What a group, or a job without places, waits for, in words."""

from collections.abc import Sequence

from elastic_pytorch_operator.api.times import earlier
from elastic_pytorch_operator.model.operator_state import read_operator_state
from elastic_pytorch_operator.planning.failures.group_restart import GroupRestart
from elastic_pytorch_operator.planning.nodes.evacuation import Evacuation
from elastic_pytorch_operator.planning.rounds.checkpoint_wait import Deferral
from elastic_pytorch_operator.planning.rounds.next_round import describe_ready
from elastic_pytorch_operator.planning.workers.schedule_timeout import ScheduleWait
from elastic_pytorch_operator.spec.job import Job


def explain_deferral(job: Job, deferral: Deferral) -> str:
    if deferral.change is None:
        return ""
    wait = f"waits up to {deferral.seconds:g} s for the next checkpoint in {job.checkpoint_path}"
    return f"{deferral.change.cause}; {wait}"


def explain_growth_wait(job: Job, newcomers: Sequence[str]) -> str:
    if not newcomers:
        return ""
    until = earlier(read_operator_state(job.status).last_growth_time, -job.growth_seconds)
    rule = f"resizePolicy.minSecondsBetweenGrowths is {job.growth_seconds:g}"
    return f"{describe_ready(newcomers)}; the group may grow at {until}, as {rule}"


def explain_evacuation(evacuation: Evacuation) -> str:
    return "; ".join(
        f"{worker} {why}, as soon as its replacement is ready"
        for worker, why in evacuation.staying.items()
    )


def explain_restart(restart: GroupRestart) -> str:
    rule = restart.cause.rule if restart.cause else None
    cause = restart.cause or "see status.rootCause"
    return f"{rule or 'failurePolicy.rules'} replaces all workers: {cause}"


def explain_schedule_wait(job: Job, wait: ScheduleWait) -> str:
    return (
        f"fewer than {job.minimum} workers had a node for {job.scheduling.timeout_seconds} s "
        "(scheduling.scheduleTimeoutSeconds): their pods are deleted to make room for other jobs, "
        f"and the next attempt is at {wait.retry_time}"
    )
