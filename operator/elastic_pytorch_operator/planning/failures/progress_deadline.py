"""`progressDeadlineSeconds`: a group that finishes no step within that time hangs.

Its agents report where each rank stands before it restarts, which counts as a failure of the job's
own.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from elastic_pytorch_operator.model.failure import FailureRecord
from elastic_pytorch_operator.model.observed import (
    MAX_PLACES,
    SILENT,
    AgentState,
    AgentView,
    Observed,
    Place,
)
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.failures.hang_culprit import find_culprits
from elastic_pytorch_operator.spec.job import Job

STACKS_SECONDS = 2.0  # for agents to write the stacks
ANSWERS_SECONDS = 5.0  # for the other agents to report their ranks' places, once one has


@dataclass(frozen=True, slots=True)
class Stall:
    round: int
    found_at: float  # the agents were asked for stacks
    restart_at: float
    cause: FailureRecord  # counts at the restart


def find_stall(
    job: Job, observed: Observed, known: Stall | None
) -> tuple[Stall | None, float | None]:
    """Returns the stall, None if the group steps, and when to look again."""
    round_ = observed.round
    if (
        job.progress_deadline_seconds is None
        or round_ is None
        or round_.size == 0
        or observed.saving_since is not None
    ):
        return None, None
    members = observed.took_up(round_)
    # In an orderly change the round before may train on to its next step boundary.
    stepping = [
        agent
        for agent in observed.agents.values()
        if round_.orderly_since <= agent.round <= round_.number
    ]
    stepped_at = max([round_.declared_at, *(agent.progressed_at for agent in stepping)])
    hangs_at = stepped_at + job.progress_deadline_seconds
    if observed.now < hangs_at:
        return None, hangs_at
    found_at = known.found_at if known and known.round == round_.number else observed.now
    answers = {a.worker: a.places for a in members if a.places and a.placed_at >= found_at}
    waits = 0 < len(answers) < round_.size and observed.now < found_at + ANSWERS_SECONDS
    restart_at = found_at + (ANSWERS_SECONDS if waits else STACKS_SECONDS)
    cause = _cause(job, found_at, round_, members, _places_of(round_, members, answers))
    return Stall(round_.number, found_at, restart_at, cause), restart_at


def _cause(
    job: Job,
    found_at: float,
    round_: Round,
    members: list[AgentView],
    places: Mapping[int, tuple[str, Place]],
) -> FailureRecord:
    training = [agent for agent in members if agent.state is not AgentState.SUCCEEDED]
    steps = {agent.worker: agent.progress.step for agent in training}
    reported = [step for step in steps.values() if step is not None]
    behind = min(training, key=lambda agent: (steps[agent.worker] or 0, agent.rank), default=None)
    text = f"no step was finished within progressDeadlineSeconds ({job.progress_deadline_seconds})"
    culprits = find_culprits({rank: place for rank, (_, place) in places.items()})
    if culprits.ranks and reported:
        text += f"; {culprits.text}"
    elif not reported:
        text += "; the script has reported none at all (it does so by elastic_pytorch.report)"
    elif behind is not None and (step := steps[behind.worker] or 0) < max(reported):
        text += f"; rank {behind.rank} has come to step {step}, others to step {max(reported)}"
    else:
        text += f"; all have come to step {max(reported)}"
    if culprits.text and not (culprits.ranks and reported):
        text += f"; {culprits.text}"
    rank, worker = (behind.rank, behind.worker) if behind else (None, round_.workers[0])
    if culprits.ranks:
        rank, worker = culprits.ranks[0], places[culprits.ranks[0]][0]
    text += "; the pods' logs have the stacks"
    return FailureRecord(worker, rank, None, "", text, found_at)


def _places_of(
    round_: Round, members: list[AgentView], answers: Mapping[str, tuple[Place, ...]]
) -> dict[int, tuple[str, Place]]:
    """The worker and the place of each rank."""
    if not members:
        return {}
    [(processes, _)] = Counter(agent.local_world_size for agent in members).most_common(1)
    found = {}
    for agent in members:
        own = answers.get(agent.worker, ())
        for local_rank in range(min(processes, MAX_PLACES)):
            place = own[local_rank] if local_rank < len(own) else SILENT
            found[round_.ranks[agent.worker] * processes + local_rank] = agent.worker, place
    return found
