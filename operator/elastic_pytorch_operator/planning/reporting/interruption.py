"""How long a change of the group has interrupted the training, and what it cost.

docs/internals/rounds.md describes the phases, which follow each other.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.times import seconds_between
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Observed
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.workers.silence import PEER_FAILED

ACTIVE = (AgentState.RUNNING, AgentState.SUCCEEDED)
WAITING = (AgentState.PREPARING, AgentState.READY)
LOSSES = (names.WORKER_LOST, names.WORKER_FAILED, names.BELOW_MINIMUM)
DETECTION, STOP, WAIT, PREPARE, START, INIT, FIRST_STEP = PHASES = (
    *("detection", "stop", "wait", "prepare", "start", "init", "firstStep"),
)


@dataclass(frozen=True, slots=True)
class Interruption:
    """From its cause to the first step after it."""

    round: int  # the one that follows
    reason: str
    since: float  # the group stopped, or had to
    step_before: int | None = None  # of the group before; None: its script reports none
    seconds: float | None = None  # None: it goes on
    steps_lost: int | None = None  # done again
    group: Round | None = None  # that trained before; None: not known
    size: int = 0  # workers that train after it
    emptied: bool = False  # for some of the time, no worker was to train
    declared_at: float | None = None  # the first round after the disturbance
    stopped_at: float | None = None  # the members that go on; None: they have not
    phases: Mapping[str, float] = field(default_factory=dict)
    time: str = ""  # of its end
    began: str = ""  # its first round, RFC 3339

    def as_state(self) -> dict[str, Any]:
        """For the next leader, while it lasts."""
        found: dict[str, Any] = {"round": self.round, "cause": self.reason, "began": self.began}
        return found if self.step_before is None else found | {"step": self.step_before}

    def as_status(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "time": self.time,
            "round": self.round,
            "replicas": self.size,
            "cause": self.reason,
            "seconds": f"{self.seconds or 0.0:.2f}",
        }
        if self.phases:
            found["phaseSeconds"] = {name: f"{s:.2f}" for name, s in self.phases.items()}
        return found if self.steps_lost is None else found | {"stepsLost": self.steps_lost}


@dataclass(frozen=True, slots=True)
class Interruptions:
    current: Interruption | None = None
    last: Interruption | None = None  # that is over
    # Of a group that trained under another leader, until a round of it is known; None: no group.
    unled_step: int | None = None


NO_INTERRUPTIONS = Interruptions()


def recall_interruption(state: Mapping[str, Any], now: float, time: str) -> Interruption | None:
    round_, cause, began, step = (state.get(name) for name in ("round", "cause", "began", "step"))
    if type(round_) is not int or not isinstance(began, str) or not isinstance(cause, str):
        return None
    if not cause.isalpha():
        return None
    since, step = now - seconds_between(began, time), step if type(step) is int else None
    return Interruption(round_, cause, since, step, emptied=True, began=began)


def begin_interruption(
    after: Round,
    observed: Observed,
    current: Interruption | None,
    *,
    status_step: int | None = None,
    unled_step: int | None = None,
) -> Interruption | None:
    """`status_step` is for a group of which no agent is known any more."""
    before = observed.round
    if after.reason == names.JOB_SUSPENDED or (after.reason == names.EVICTED and not after.size):
        return None
    if current is not None:
        return replace(current, round=after.number, emptied=current.emptied or not after.size)
    if before is None and unled_step is not None:
        return Interruption(
            after.number,
            names.WORKER_LOST,
            after.declared_at,
            unled_step,
            declared_at=after.declared_at,
            began=observed.time,
        )
    if before is None or before.size == 0:
        return None
    agents = observed.agents_in(before)
    signs = [moment for agent in agents for moment in _signs(agent, before)]
    if after.reason in LOSSES:
        lost = [agent for agent in agents if agent.worker not in after.ranks]
        signs += _silences(lost, agents, observed)
    steps = [a.progress.step for a in agents if a.progress.step is not None]
    return Interruption(
        round=after.number,
        reason=after.reason,
        since=min([*(max(sign, before.declared_at) for sign in signs), after.declared_at]),
        step_before=max(steps, default=None if agents else status_step),
        group=before,
        emptied=not after.size,
        declared_at=after.declared_at,
        began=observed.time,
    )


def set_up_seconds(declared: Round | None, observed: Observed) -> float | None:
    """The last set-up that a round which begins or resumes a training waited for; None: none."""
    before = observed.round
    if declared is None or (before is not None and before.size):
        return None
    last = _last_set_up(declared, observed.agents.values(), before.declared_at if before else 0.0)
    return last[1] - last[0] if last else None


def _last_set_up(
    round_: Round, agents: Iterable[AgentView], after: float
) -> tuple[float, float] | None:
    """Start and end of the set-up of the member that was ready last, after a moment."""
    found = [(a.set_up_since, a.set_up_until) for a in agents if a.worker in round_.ranks]
    known = [(since, until) for since, until in found if since is not None and until is not None]
    late = (moments for moments in known if moments[1] > after)
    return max(late, key=lambda moments: moments[1], default=None)


def _signs(agent: AgentView, group: Round) -> list[float]:
    signs = []
    if agent.state is AgentState.FAILED and agent.round == group.number:
        failed_at = agent.failure.failed_at if agent.failure else agent.state_since
        signs.append(min(agent.state_since, failed_at))
    if agent.disconnected_since is not None:
        signs.append(agent.disconnected_since)
    return signs


def _silences(
    lost: Sequence[AgentView], group: Sequence[AgentView], observed: Observed
) -> list[float]:
    """Since when lost agents are silent, but after their group's last step, which needs all."""
    stepped_at = max((agent.progressed_at for agent in group), default=0.0)
    longest = PEER_FAILED.at_most_seconds * observed.heartbeat_seconds
    silent = (agent for agent in lost if observed.now - agent.heard_at >= longest)
    return [max(agent.heard_at, stepped_at) for agent in silent]


def advance_interruption(
    interruption: Interruption | None, observed: Observed, gone: Container[str] = ()
) -> Interruption | None:
    """Ends an interruption at the first step of its group or, without steps, once all run."""
    round_ = observed.round
    if interruption is None or round_ is None:
        return interruption
    there = [agent for agent in observed.agents.values() if agent.worker not in gone]
    if interruption.stopped_at is None:
        stopped_at = _stopped_at(interruption, round_, there)
        if stopped_at is not None:
            interruption = replace(interruption, stopped_at=stopped_at)
    if round_.size == 0:
        return interruption
    active = [a for a in observed.took_up(round_) if a.state in ACTIVE]
    if len(active) < round_.size:
        return interruption
    before, lost = interruption.step_before, None
    stepped = [a for a in active if a.progress.first_step is not None]
    if stepped and before is not None:
        ended_at = min(a.progressed_at for a in stepped)
        lost = max(0, before - min(a.progress.first_step or 0 for a in stepped) + 1)
    elif before is None or any(a.state is AgentState.SUCCEEDED for a in active):
        ended_at = max(a.state_since for a in active)
    else:
        return interruption
    phases = _phases(interruption, round_, active, ended_at, stepped=lost is not None)
    seconds = max(0.0, ended_at - interruption.since)
    ended = replace(interruption, seconds=seconds, steps_lost=lost, phases=phases)
    return replace(ended, size=round_.size, time=observed.time)


def _stopped_at(
    interruption: Interruption, round_: Round, agents: Sequence[AgentView]
) -> float | None:
    """None: a member of the group before that goes on has not stopped."""
    group, begun_at = interruption.group, interruption.declared_at
    if group is None or begun_at is None:
        return None
    members = [agent for agent in agents if agent.worker in group.ranks]
    if round_.size:
        going_on = [agent for agent in members if agent.worker in round_.ranks]
    else:
        going_on = [agent for agent in members if agent.state is not AgentState.LEAVING]
    # A failed worker's agent does not report when its other processes have stopped.
    stopped = [
        a for a in going_on if a.state in WAITING or (a.round > group.number and a.state in ACTIVE)
    ]
    if len(stopped) < len(going_on):
        return None
    return max([begun_at, *(agent.state_since for agent in stopped)])


def _phases(
    interruption: Interruption,
    round_: Round,
    active: Sequence[AgentView],
    ended_at: float,
    *,
    stepped: bool,
) -> dict[str, float]:
    if interruption.declared_at is None:
        return {}
    # The slowest of the pods that have reported it: one report that the group has formed is enough.
    started = max((a.started_at for a in active if a.started_at is not None), default=None)
    formed = max((a.formed_at for a in active if a.formed_at is not None), default=None)
    if not stepped:
        started, formed = ended_at, None
    regrouped, set_up = max(round_.declared_at, interruption.stopped_at or 0.0), None
    if interruption.emptied:
        set_up = _last_set_up(round_, active, interruption.declared_at)
    ends = {
        DETECTION: interruption.declared_at,
        STOP: interruption.stopped_at,
        WAIT: set_up[0] if set_up else regrouped,
        PREPARE: regrouped if set_up else None,
        START: started,
        INIT: formed,
        FIRST_STEP: ended_at if stepped else None,
    }
    return split_interruption(interruption.since, ends)


def split_interruption(since: float, ends: Mapping[str, float | None]) -> dict[str, float]:
    """The seconds of each phase whose end is known; the time of the others counts for the next one.

    No phase is negative, although the moments come from several pods.
    """
    # What is over when the first step is reported cannot have ended after it.
    last, latest = since, ends.get(FIRST_STEP)
    phases: dict[str, float] = {}
    for phase in PHASES:
        if (moment := ends.get(phase)) is not None:
            until = max(last, moment if latest is None else min(moment, latest))
            phases[phase] = until - last
            last = until
    return phases
