"""Whether checkpoints fail again and again, or take too long, while the group trains on."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import Condition
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Observed
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.spec.job import Job

# Failed saves in a row, in steps: each change of the number is a write of the status.
REPORTED_FROM = (3, 10, 30, 100, 300, 1000)


def explain_failing_saves(agents: Iterable[AgentView]) -> str:
    failing = [
        each
        for each in agents
        if each.state is AgentState.RUNNING and each.progress.failed_saves >= REPORTED_FROM[0]
    ]
    if not failing:
        return ""
    worst = max(failing, key=lambda each: (each.progress.failed_saves, each.worker))
    least = max(count for count in REPORTED_FROM if count <= worst.progress.failed_saves)
    return (
        f"at least {least} saves of a checkpoint in a row have failed in {worst.worker}: "
        f"{worst.progress.save_error}"
    )


def explain_slow_saves(job: Job, agents: Iterable[AgentView]) -> str:
    """Without the seconds: a text that changed with each checkpoint would be a write each time."""
    longest = max((each.progress.checkpoint_seconds or 0.0 for each in agents), default=0.0)
    if longest <= job.grace_seconds:
        return ""
    return (
        "writing a checkpoint takes longer than terminationGracePeriodSeconds "
        f"({job.grace_seconds}): when all workers stop, as for `suspend`, "
        "the steps since the last one are lost"
    )


def explain_unsaved_steps(progress: Mapping[str, Any]) -> str:
    step, saved = progress.get("step") or 0, progress.get("checkpointStep")
    if step <= (saved or 0):
        return ""
    if saved is None:
        return (
            f"no checkpoint was reported, and steps 1 to {step} are done again, "
            "unless the script saves them itself"
        )
    return f"the last checkpoint is of step {saved}, and steps {saved + 1} to {step} are done again"


def with_failing_saves(
    degraded: Condition, job: Job, observed: Observed, round_: Round | None
) -> Condition:
    members = observed.agents_in(round_)
    reason, message = names.CHECKPOINTS_FAILING, explain_failing_saves(members)
    if not message:
        reason, message = names.CHECKPOINTS_SLOW, explain_slow_saves(job, members)
    if not message:
        return degraded
    if degraded.true:
        return replace(degraded, message=f"{degraded.message}; {message}")
    return Condition(names.DEGRADED, True, reason, message)
