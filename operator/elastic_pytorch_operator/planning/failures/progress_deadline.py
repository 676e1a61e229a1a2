"""`progressDeadlineSeconds`: a group that finishes no step within that time hangs.

First its agents are asked for the stacks of their workers, which go to the pods' logs. Then the group is restarted, and that counts as a
failure of the job's own.
"""

from dataclasses import dataclass

from elastic_pytorch_operator.model.failure import FailureRecord
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Observed
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.spec.job import Job

STACKS_SECONDS = 2.0  # what the agents get to write the stacks down


@dataclass(frozen=True, slots=True)
class Stall:
    """A round that hangs.

    Attributes:
        round: its number.
        restart_at: when the group is to be restarted, monotonic seconds.
        cause: what is to be counted then.
    """

    round: int
    restart_at: float
    cause: FailureRecord


def find_stall(job: Job, observed: Observed, known: Stall | None) -> tuple[Stall | None, float | None]:
    """Returns whether the current round hangs.

    Args:
        job: says how long a step may take.
        observed: the round, and what its agents last reported.
        known: the stall found before.

    Returns:
        The stall, None if the group steps; and when to look again.
    """
    round_ = observed.round
    if job.progress_deadline_seconds is None or round_ is None or round_.size == 0:
        return None, None
    members = [agent for name in round_.ranks if (agent := observed.agents.get(name)) and agent.round == round_.number]
    # In an orderly change the round before may train on to its next step boundary.
    stepping = [agent for agent in observed.agents.values() if round_.orderly_since <= agent.round <= round_.number]
    stepped_at = max([round_.declared_at, *(agent.progressed_at for agent in stepping)])
    hangs_at = stepped_at + job.progress_deadline_seconds
    if observed.now < hangs_at:
        return None, hangs_at
    if known is not None and known.round == round_.number:
        return known, known.restart_at
    restart_at = observed.now + STACKS_SECONDS
    return Stall(round_.number, restart_at, _cause(job, observed.now, round_, members)), restart_at


def _cause(job: Job, now: float, round_: Round, members: list[AgentView]) -> FailureRecord:
    """Blames the worker that is furthest behind."""
    training = [agent for agent in members if agent.state is not AgentState.SUCCEEDED]
    steps = {agent.worker: agent.progress.step for agent in training}
    reported = [step for step in steps.values() if step is not None]
    behind = min(training, key=lambda agent: (steps[agent.worker] or 0, agent.rank), default=None)
    text = f"no step was finished within progressDeadlineSeconds ({job.progress_deadline_seconds})"
    if not reported:
        text += "; the script has reported none at all (it does so by elastic_pytorch.report)"
    elif behind is not None and (steps[behind.worker] or 0) < max(reported):
        text += f"; rank {behind.rank} has come to step {steps[behind.worker] or 0}, others to step {max(reported)}"
    else:
        text += f"; all have come to step {max(reported)}"
    worker = behind.worker if behind else round_.workers[0]
    rank = behind.rank if behind else None
    return FailureRecord(worker, rank, None, "", f"{text}; the pods' logs have the stacks", now)
