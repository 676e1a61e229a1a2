"""How long the last change of the group took, and what it cost: `status.lastRecovery`."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Observed
from elastic_pytorch_operator.model.round import Round


@dataclass(frozen=True, slots=True)
class Recovery:
    """A change of the group that trained, from its cause to the first step after it.

    Attributes:
        round: the round that it led to.
        reason: of that round.
        since: when the group stopped or was told to, monotonic seconds.
        step_before: the last step known of the group before, None if its script reports none.
        seconds: what it took; None while it is going on.
        steps_lost: steps done again; None if unknown.
    """

    round: int
    reason: str
    since: float
    step_before: int | None = None
    seconds: float | None = None
    steps_lost: int | None = None


def begin_recovery(before: Round | None, after: Round, observed: Observed, unfinished: Recovery | None) -> Recovery | None:
    """The recovery that a newly declared round starts; None for a first round.

    Args:
        before: the round that it follows.
        after: the new round.
        observed: what was known when it was declared.
        unfinished: a recovery still going on, which this round continues.
    """
    if after.reason == names.JOB_SUSPENDED or (after.reason == names.EVICTED and not after.size):
        return None
    if unfinished is not None and unfinished.seconds is None:
        return replace(unfinished, round=after.number)
    if before is None or before.size == 0:
        return None
    agents = [agent for name in before.ranks if (agent := observed.agents.get(name))]
    signs = [a.state_since for a in agents if a.state is AgentState.FAILED and a.round == before.number]
    signs += [a.disconnected_since for a in agents if a.disconnected_since is not None]
    steps = [a.progress.step for a in agents if a.progress.step is not None]
    return Recovery(
        round=after.number,
        reason=after.reason,
        since=min([*signs, after.declared_at]),
        step_before=max(steps, default=None),
    )


def pause_seconds(recovery: Recovery, agents: Iterable[AgentView]) -> float:
    """What a change that is over has cost: the time without a step, and the time of the steps that are done again, in seconds."""
    speed = max((agent.steps_per_second or 0.0 for agent in agents), default=0.0)
    again = (recovery.steps_lost or 0) / speed if speed else 0.0
    return (recovery.seconds or 0.0) + again


def advance_recovery(recovery: Recovery | None, round_: Round | None, agents: Iterable[AgentView]) -> Recovery | None:
    """Ends a recovery once its group trains: at its first step, or if its script reports none, when all its workers run."""
    if recovery is None or recovery.seconds is not None or round_ is None or round_.size == 0:
        return recovery
    here = [a for a in agents if a.worker in round_.ranks and a.round == round_.number]
    active = [a for a in here if a.state in (AgentState.RUNNING, AgentState.SUCCEEDED)]
    if len(active) < round_.size:
        return recovery
    first_steps = [a.progress.first_step for a in active if a.progress.first_step is not None]
    if first_steps and recovery.step_before is not None:
        ended_at = min(a.progressed_at for a in active if a.progress.first_step is not None)
        lost = max(0, recovery.step_before - min(first_steps) + 1)
        return replace(recovery, seconds=max(0.0, ended_at - recovery.since), steps_lost=lost)
    if recovery.step_before is None or any(a.state is AgentState.SUCCEEDED for a in active):
        ended_at = max(a.state_since for a in active)
        return replace(recovery, seconds=max(0.0, ended_at - recovery.since))
    return recovery
