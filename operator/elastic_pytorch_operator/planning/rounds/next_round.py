"""Which workers are in the next round, and whether it is time for one.

docs/internals/rounds.md has the rules, in a table of events and the rounds that follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.times import earlier, earliest
from elastic_pytorch_operator.model.failure import has_succeeded
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.model.operator_state import read_operator_state
from elastic_pytorch_operator.model.round import Member, Round
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.rounds.membership import (
    assign_ranks,
    choose_group,
    domains_of,
)
from elastic_pytorch_operator.planning.rounds.orderly import keeps_all_since, order_of
from elastic_pytorch_operator.planning.workers.liveness import Candidate, settled_at
from elastic_pytorch_operator.planning.workers.process_counts import differs, processes_each
from elastic_pytorch_operator.spec.job import Job


class Cause(NamedTuple):
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Decision:
    round: Round | None = None  # to be declared; None: the current one stands
    nudge: bool = False  # all agents are to report at once
    recheck_at: float | None = None
    cooling: str = ""  # which newcomers wait since the group has just grown, for people


def next_round(
    job: Job,
    target: Target,
    observed: Observed,
    candidates: Sequence[Candidate],
    *,
    stop: Cause | None = None,
    restart: Cause | None = None,
    stall: Cause | None = None,
    eviction: Cause | None = None,
    failure_open: bool = False,
    backoff_until: float = 0.0,
    settled: bool = False,
    grown_at: float | None = None,
) -> Decision:
    """Decides on the next round.

    Its number is above all numbers in the status and in heartbeats. An earlier leader may have
    declared a round of that number, if no status has it and all agents that received it count as
    lost. The two do not mix: the pods of those agents are deleted, so that they are members of no
    round.

    Args:
        failure_open: members are to report first, as the cause of a failure is not known yet.
        settled: the change waits for a checkpoint anyway, so no further newcomers are awaited.
        grown_at: when a round, even the first, last made the group larger.
    """
    now, current, members, wanted = observed.now, observed.round, observed.ranks, target.size
    # Once a member has finished its work, nothing disturbs a whole group.
    finishing = any(has_succeeded(name, observed) for name in members)
    by_name = {candidate.worker: candidate for candidate in candidates}
    processes = processes_each(members, candidates)
    present = [by_name[w] for w in members if w in by_name and by_name[w].ready]
    stay = [candidate for candidate in present if _fits(candidate, processes)]
    taken = {candidate.index for candidate in stay}
    joiners = []
    for candidate in sorted(
        candidates,
        key=lambda c: (c.worker not in observed.trained, c.index, c.agent.state_since, c.worker),
    ):
        # A spare may have been on the node of a lost member: then no round would reach it.
        reached = candidate.ready and candidate.agent.disconnected_since is None
        if (
            reached
            and candidate.worker not in members
            and candidate.index not in taken
            and _fits(candidate, processes)
        ):
            joiners.append(candidate)
            taken.add(candidate.index)
    chosen = choose_group(stay, joiners, wanted, job.allowed, job.unit_replicas)
    last_number = max(
        int(job.status.get("round", 0)), *(agent.newest for agent in observed.agents.values()), 0
    )
    number = max(current.number if current else 0, last_number) + 1

    def declare(reason: str, cause: str, group: Sequence[Candidate] = ()) -> Decision:
        store_port, domains = current.store_port if current else 0, domains_of(job, observed)
        ranked = assign_ranks(members, group, store_port, job.unit_replicas, domains)
        port = (ranked[0].agent.port if ranked else 0) or job.store_port
        since, unformed = order_of(
            current, candidates, number, now=now, stuck=stall is not None or finishing
        )
        return Decision(
            Round(
                number,
                tuple(Member(c.worker, c.address) for c in ranked),
                port,
                reason,
                cause,
                now,
                orderly_since=since,
                unformed=unformed,
                keeps_all_since=keeps_all_since(current, (c.worker for c in ranked), number),
            )
        )

    recheck = earliest(*(c.recheck_at for c in candidates))
    unheard = _may_train_unheard(current, candidates, last_number, present)
    if (halt := stop or restart) and (unheard or (current and current.size)):
        return declare(*halt)
    if stop is not None or unheard:
        return Decision(recheck_at=recheck)
    if current is None or current.size == 0:
        if len(chosen) < job.minimum:
            return Decision(recheck_at=recheck)
        wait_until = settled_at(chosen, candidates, wanted, job.settle_seconds, now)
        if now < wait_until:
            return Decision(recheck_at=earliest(wait_until, recheck))
        return declare(
            names.FIRST_ROUND, f"{len(chosen)} of {wanted} wanted workers are ready", chosen
        )

    failed = [candidate for candidate in present if candidate.failed]
    if len(present) < current.size or failed:
        if failed and failure_open:
            return Decision(nudge=True, recheck_at=recheck)
        if failed and now < backoff_until:
            return Decision(recheck_at=earliest(backoff_until, recheck))
        chosen = _without_set_up(stay, joiners, job, wanted) or chosen
        reason, cause = _explain_loss(current, by_name, failed)
        if reason == names.SCALED_DOWN and eviction is not None:
            reason, cause = eviction
        if len(chosen) < job.minimum:
            shortage = f"workers left: {len(chosen)}, the minimum is {job.minimum}"
            return declare(names.BELOW_MINIMUM, f"{cause}; {shortage}")
        return declare(reason, cause, chosen)
    if stall is not None:
        return declare(*stall, chosen if len(chosen) >= job.minimum else ())
    # The last checkpoint is in the members' memory.
    if finishing or observed.saving_since is not None:
        return Decision(recheck_at=recheck)
    if apart := [candidate for candidate in present if differs(candidate, processes)]:
        cause = (
            f"{_list(apart)} {'runs' if len(apart) == 1 else 'run'} another number of processes "
            f"than the {len(chosen)} others"
        )
        if len(chosen) < job.minimum:
            return declare(names.BELOW_MINIMUM, cause)
        return declare(names.PROCESSES_DIFFER, cause, chosen)
    if len(stay) > wanted:  # the pods that go are spares
        return declare(names.SCALED_DOWN, f"{wanted} workers are wanted", chosen)
    if not (newcomers := [candidate for candidate in chosen if candidate.worker not in members]):
        return Decision(recheck_at=recheck)
    wait_until = settled_at(newcomers, candidates, wanted - len(stay), job.settle_seconds, now)
    arrived = tuple(candidate.worker for candidate in newcomers)
    if now < wait_until and not settled:
        return Decision(recheck_at=earliest(wait_until, recheck))
    if grown_at is not None and now < (grow_at := grown_at + job.growth_seconds):
        return Decision(
            recheck_at=earliest(grow_at, recheck), cooling=_explain_growth_wait(job, arrived)
        )
    return declare(names.WORKER_JOINED, _describe_ready(arrived), chosen)


def _fits(candidate: Candidate, processes: int) -> bool:
    return not (candidate.gives_up or differs(candidate, processes))


def _without_set_up(
    stay: Sequence[Candidate], joiners: Sequence[Candidate], job: Job, wanted: int
) -> list[Candidate]:
    """The group that waits for no set-up of a new process; empty: it has too few workers.

    If another member needs new processes as well, the group waits for them anyway. If no member
    goes on, all have failed alike.
    """
    going_on = [candidate for candidate in stay if candidate.failure is None]
    kept = all(candidate.agent.keeps_processes for candidate in going_on)
    if not (job.prepare_seconds and going_on and kept):
        return []
    group = choose_group(going_on, joiners, wanted, job.allowed, job.unit_replicas)
    return group if len(group) >= job.minimum else []


def _may_train_unheard(
    current: Round | None,
    candidates: Sequence[Candidate],
    last_number: int,
    present: Sequence[Candidate],
) -> bool:
    """Whether a whole group lacks only workers that have not reported to a new leader."""
    unheard = sum(candidate.unheard for candidate in candidates)
    if current is None:
        return bool(last_number and unheard)
    missing = current.size - len(present)
    if any(candidate.failed for candidate in present):
        return False
    return 0 < missing == current.size - len(current.members) <= unheard


def _explain_loss(
    current: Round, by_name: dict[str, Candidate], failed: Sequence[Candidate]
) -> tuple[str, str]:
    gone, leaving = [], []
    retired = True
    for worker in current.ranks:
        candidate = by_name.get(worker)
        if candidate is None or candidate.gone:
            gone.append(f"{worker} {candidate.why if candidate else 'was deleted'}")
        elif not candidate.ready:
            leaving.append(f"{worker} {candidate.why}")
            retired = retired and candidate.retired
    if current.size > len(current.members):
        gone.append(f"{current.size - len(current.members)} workers have not reported")
    if gone:
        return names.WORKER_LOST, "; ".join(gone + leaving)
    if leaving:
        return (names.SCALED_DOWN if retired else names.WORKER_LEAVING), "; ".join(leaving)
    explained = sorted((c for c in failed if c.failure), key=lambda c: c.agent.state_since)
    if explained:
        return names.WORKER_FAILED, f"{explained[0].worker} has failed: {explained[0].failure}"
    return names.WORKER_FAILED, f"the workers of {_list(failed)} have failed"


def grows(before: Round | None, declared: Round | None) -> bool:
    return declared is not None and declared.size > (before.size if before else 0)


def _explain_growth_wait(job: Job, newcomers: Sequence[str]) -> str:
    until = earlier(read_operator_state(job.status).last_growth_time, -job.growth_seconds)
    rule = f"resizePolicy.minSecondsBetweenGrowths is {job.growth_seconds:g}"
    return f"{_describe_ready(newcomers)}; the group may grow at {until}, as {rule}"


def _describe_ready(workers: Sequence[str]) -> str:
    return f"{', '.join(workers)} {'is' if len(workers) == 1 else 'are'} ready"


def _list(candidates: Sequence[Candidate]) -> str:
    return ", ".join(candidate.worker for candidate in candidates)
