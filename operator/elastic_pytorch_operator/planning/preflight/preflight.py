"""Checks the nodes of workers that are to join a group, and leaves out those that fail twice.

Workers that wait for a round check their nodes in pairs, while a group that trains goes on. A worker that fails is checked again. If it
fails again, alone or with a partner that has passed, its pod is replaced on another node. A loss may have been the fault of any node of
the group: after it all are checked again.

With `spec.prepare` a worker that waits for a round has processes, which hold the device. There a node is checked each time before its
worker starts them, and at no other time: members and spares keep theirs after a loss.

Nothing here is needed to go on: what a new leader does not know is checked again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from elastic_pytorch_operator.api.times import earliest
from elastic_pytorch_operator.model.check import CheckReport, CheckRequest
from elastic_pytorch_operator.model.observed import AgentState, Nodes, Observed
from elastic_pytorch_operator.planning.preflight.pairs import Pairs, pair_again, pair_up
from elastic_pytorch_operator.planning.preflight.verdicts import NOTHING_TYPICAL, Typical, Verdicts, judge, typical_of
from elastic_pytorch_operator.planning.target import Target
from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness, settled_at
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.preflight import PreflightPolicy

REPORT_MARGIN_SECONDS = 10.0  # beyond the time of a check, for its reports to arrive
LEFT_OUT_SECONDS = 1800.0  # after that a node may be tried again
PREPARED = (AgentState.PREPARING, AgentState.READY)  # with `spec.prepare`: has been checked, and holds its devices
MAX_REPEATS = 5  # of a check, until one worker of a failed pair can be blamed


@dataclass(frozen=True, slots=True)
class Stage:
    """A check that is going on.

    Attributes:
        number: of the check.
        pairs: who is checked with whom.
        opened_at: since when, monotonic seconds.
        suspects: what was wrong with workers that have failed once; empty: this is their first check.
        passed: workers that have passed in the checks before this one that led to it.
        tried: groups that have been checked together in those.
        repeats: how many those were.
    """

    number: int
    pairs: Pairs
    opened_at: float
    suspects: Mapping[str, str] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()
    tried: frozenset[frozenset[str]] = frozenset()
    repeats: int = 0

    @property
    def workers(self) -> tuple[str, ...]:
        """All that take part."""
        return tuple(worker for pair in self.pairs for worker in pair)


@dataclass(frozen=True, slots=True)
class LeftOutNode:
    """A node that the job does without.

    Attributes:
        node: its name.
        worker: that failed there.
        why: what was wrong, to follow the worker's name in a sentence.
        since: monotonic seconds.
        time: the same moment in RFC 3339.
    """

    node: str
    worker: str
    why: str
    since: float
    time: str

    def describe(self) -> str:
        """Says what was wrong there, as a clause."""
        return f"{self.worker} {self.why}, twice"

    def as_status(self) -> dict[str, str]:
        """As an entry of `status.leftOutNodes`."""
        return {"node": self.node, "worker": self.worker, "message": self.why, "time": self.time}


@dataclass(frozen=True, slots=True)
class Preflight:
    """What is remembered of the checks of a job's nodes.

    Attributes:
        passed: workers whose nodes have passed.
        failed: what is wrong with workers that have failed twice; they are removed.
        stage: the check that is going on.
        number: of the last check.
        typical: what earlier checks have typically measured.
        nodes: that are left out, by name.
        asked: what each agent was asked last; None: to start its set-up.
    """

    passed: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)
    stage: Stage | None = None
    number: int = 0
    typical: Typical = NOTHING_TYPICAL
    nodes: Mapping[str, LeftOutNode] = field(default_factory=dict)
    asked: Mapping[str, CheckRequest | None] = field(default_factory=dict)

    def voided(self) -> "Preflight":
        """After a loss: what has passed is to be checked again."""
        return replace(self, passed=frozenset(), typical=NOTHING_TYPICAL)


NO_PREFLIGHT = Preflight()


@dataclass(frozen=True, slots=True)
class PreflightStep:
    """What a plan does about the checks.

    Attributes:
        state: to be remembered.
        requests: what each agent is to measure, by worker, or None: it may start its set-up. None for all: as before.
        left_out: nodes that are left out from now on.
        undecided: what was wrong with workers of which none can be blamed.
        recheck_at: when to decide again if nothing happens before, monotonic seconds.
    """

    state: Preflight
    requests: Mapping[str, CheckRequest | None] | None = None
    left_out: tuple[LeftOutNode, ...] = ()
    undecided: Mapping[str, str] = field(default_factory=dict)
    recheck_at: float | None = None

    @property
    def text(self) -> str:
        """Which check is going on, for people; empty: none is."""
        stage = self.state.stage
        if stage is None:
            return ""
        count = len(stage.suspects or stage.workers)
        again = " again" if stage.suspects else ""
        return f"{'the node of 1 worker is' if count == 1 else f'the nodes of {count} workers are'} checked{again}"


NO_CHECKS = PreflightStep(NO_PREFLIGHT)


def advance_preflight(
    job: Job, target: Target, observed: Observed, candidates: Sequence[Candidate], known: Preflight
) -> PreflightStep:
    """Judges the check that is going on if it is over, and begins the next one if workers wait for it.

    Args:
        job: whether and how its nodes are checked.
        target: how many workers it is to have.
        observed: the moment.
        candidates: the workers, assessed as if no node had to be checked.
        known: what is remembered.
    """
    state = _forget(job, known, observed)
    checks = job.preflight is not None or job.prepare_seconds
    free = {candidate.worker: candidate for candidate in candidates if checks and _is_free(job, observed, candidate)}
    if job.preflight is None or target.stopped:
        return _ask(replace(state, stage=None, passed=frozenset(() if target.stopped else free)), known, job, free)
    left_out: tuple[LeftOutNode, ...] = ()
    undecided: Mapping[str, str] = {}
    if (stage := state.stage) is not None:
        reports = _reports(stage, observed)
        gone = {worker for worker in stage.workers if worker not in free}
        if observed.now < _ends_at(stage, job.preflight) and not {*reports, *gone} >= set(stage.workers):
            return _ask(state, known, job, free, recheck_at=_ends_at(stage, job.preflight))
        typical = typical_of(stage.pairs, reports, state.typical)
        verdicts = judge(stage.pairs, reports, gone, typical, job.preflight)
        state, left_out, undecided = _conclude(replace(state, typical=typical), stage, verdicts, observed, list(free))
    waits_until = None
    if state.stage is None:
        waiting, waits_until = _waiting(job, target, observed, candidates, state)
        if waiting:
            state = _begin(state, pair_up(waiting), observed)
    retried_at = earliest(*(node.since + LEFT_OUT_SECONDS for node in state.nodes.values()))
    recheck_at = earliest(waits_until, retried_at) if state.stage is None else _ends_at(state.stage, job.preflight)
    return replace(_ask(state, known, job, free, recheck_at=recheck_at), left_out=left_out, undecided=undecided)


def hold_unchecked(job: Job, observed: Observed, candidates: Sequence[Candidate], state: Preflight) -> tuple[Candidate, ...]:
    """Returns the workers, where those whose nodes have not passed, or that take part in a check, count as starting."""
    if job.preflight is None and not job.prepare_seconds:
        return tuple(candidates)
    busy = set(state.stage.workers) if state.stage else set()
    return tuple(
        replace(candidate, liveness=Liveness.STARTING, unchecked=True)
        if _is_free(job, observed, candidate)
        and (job.prepare_seconds or candidate.worker in busy or candidate.worker not in state.passed)
        else candidate
        for candidate in candidates
    )


def without_left_out(nodes: Nodes, state: Preflight) -> Nodes:
    """Returns the nodes, where those that are left out take no pods."""
    if not state.nodes:
        return nodes
    return Nodes({name: replace(node, unschedulable=True) if name in state.nodes else node for name, node in nodes.items()})


def read_left_out(status: Mapping[str, Any], now: float) -> Preflight:
    """Returns what a new leader knows of a job's checks: the nodes that are left out, from now on for the full time.

    Args:
        status: of the job.
        now: monotonic seconds.
    """
    entries = status.get("leftOutNodes") or ()
    nodes = [LeftOutNode(each["node"], each["worker"], each["message"], now, each["time"]) for each in entries]
    return Preflight(nodes={each.node: each for each in nodes})


def _is_free(job: Job, observed: Observed, candidate: Candidate) -> bool:
    """Whether a worker waits, and has no processes that hold its node's devices."""
    if candidate.liveness is not Liveness.READY or candidate.worker in observed.ranks:
        return False
    return not job.prepare_seconds or observed.agents[candidate.worker].state is AgentState.UNCHECKED


def _ask(
    state: Preflight, known: Preflight, job: Job, free: Mapping[str, Candidate], *, recheck_at: float | None = None
) -> PreflightStep:
    """What the agents are asked, if that is not what they know: the check that is going on, and with `prepare` to start their set-up."""
    asked: dict[str, CheckRequest | None] = {}
    stage = state.stage
    if stage is not None:
        begun = known.stage is not None and known.stage.number == stage.number
        asked = {w: check for w, check in known.asked.items() if check} if begun else _requests(job, stage, free)
    if job.prepare_seconds:
        asked |= dict.fromkeys(
            worker for worker in free if worker in state.passed and (not stage or worker not in stage.workers)
        )
    return PreflightStep(replace(state, asked=asked), None if asked == known.asked else asked, recheck_at=recheck_at)


def _forget(job: Job, known: Preflight, observed: Observed) -> Preflight:
    """Forgets workers whose pods are gone, or that have started their set-up, and nodes that have been left out for long."""
    pods, agents = observed.pods_by_name, observed.agents
    begun = {w for w, agent in agents.items() if agent.state is not AgentState.UNCHECKED} if job.prepare_seconds else ()
    return replace(
        known,
        passed=frozenset(worker for worker in known.passed if worker in pods and worker not in begun),
        failed={worker: why for worker, why in known.failed.items() if worker in pods},
        nodes={name: node for name, node in known.nodes.items() if observed.now < node.since + LEFT_OUT_SECONDS},
    )


def _reports(stage: Stage, observed: Observed) -> dict[str, CheckReport]:
    return {
        worker: agent.check
        for worker in stage.workers
        if (agent := observed.agents.get(worker)) and agent.check.number == stage.number
    }


def _ends_at(stage: Stage, policy: PreflightPolicy) -> float:
    return stage.opened_at + policy.seconds + REPORT_MARGIN_SECONDS


def _conclude(
    state: Preflight, stage: Stage, verdicts: Verdicts, observed: Observed, free: Sequence[str]
) -> tuple[Preflight, tuple[LeftOutNode, ...], Mapping[str, str]]:
    """What follows from a check that is over.

    Args:
        state: what is remembered.
        stage: the check.
        verdicts: what it has shown.
        observed: the moment.
        free: workers that wait for a round.

    Returns:
        What is to be remembered, with the next check of those that have failed. The nodes that are left out from now on. What was wrong
        with workers of which none can be blamed.
    """
    # A failure is a worker's own if it was alone, or with a partner that had passed.
    trusted = {worker for pair in stage.pairs if len(pair) == 1 or pair[0] in stage.passed for worker in pair}
    faults = {worker: why for worker, why in verdicts.suspects.items() if worker not in stage.passed}
    failed = {worker: why for worker, why in faults.items() if worker in stage.suspects and worker in trusted}
    open_ = {**stage.suspects, **faults}
    suspects = {w: open_[w] for w in free if w in open_ and w not in failed and w not in verdicts.passed}
    passed = stage.passed | verdicts.passed
    tried = stage.tried | {frozenset(pair) for pair in stage.pairs}
    state = _leave_out(state, failed, observed)
    undecided = _undecided(stage, verdicts, tried, state.failed)
    if stage.repeats == MAX_REPEATS:
        undecided, passed, suspects = {**undecided, **suspects}, passed | suspects.keys(), {}
    left_out = tuple(node for node in state.nodes.values() if node.worker in failed)
    state = replace(state, stage=None, passed=state.passed | passed)
    if suspects:
        partners = [worker for worker in free if worker in passed]
        pairs = pair_again(list(suspects), partners, tried)
        state = _begin(state, pairs, observed, suspects=suspects, passed=passed, tried=tried, repeats=stage.repeats + 1)
    return state, left_out, undecided


def _leave_out(state: Preflight, failed: Mapping[str, str], observed: Observed) -> Preflight:
    """Takes note of workers that have failed twice, and of their nodes."""
    nodes = dict(state.nodes)
    for worker, why in failed.items():
        if node := observed.pods_by_name[worker].node:
            nodes.setdefault(node, LeftOutNode(node, worker, why, observed.now, observed.time))
    return replace(state, failed={**state.failed, **failed}, nodes=nodes)


def _undecided(
    stage: Stage, verdicts: Verdicts, tried: Collection[frozenset[str]], failed: Mapping[str, str]
) -> dict[str, str]:
    """What was wrong with workers that pass alone, unless one that they were checked with has failed."""
    explained = {worker for group in tried if not failed.keys().isdisjoint(group) for worker in group}
    alone = {pair[0] for pair in stage.pairs if len(pair) == 1}
    return {
        worker: why
        for worker, why in stage.suspects.items()
        if worker in alone and worker in verdicts.passed and worker not in explained
    }


def _waiting(
    job: Job, target: Target, observed: Observed, candidates: Sequence[Candidate], state: Preflight
) -> tuple[list[str], float | None]:
    """The workers that are to be checked now, and if they wait for others, until when, monotonic seconds."""
    newcomers = [c for c in candidates if _is_free(job, observed, c) and c.worker not in state.failed]
    waiting = [c for c in newcomers if c.worker not in state.passed]
    # Those that still stop their processes, as after a loss, are waited for: liveness limits how long that may take.
    still = (AgentState.READY, AgentState.UNCHECKED)
    if not waiting or any(observed.agents[c.worker].state not in still for c in waiting):
        return [], None
    prepared = {w for w, agent in observed.agents.items() if agent.state in PREPARED} if job.prepare_seconds else set()
    room = target.size - len({*observed.ranks, *prepared})
    coming = [candidate for candidate in candidates if candidate.worker not in prepared]
    begins_at = settled_at(newcomers, coming, room, job.settle_seconds, observed.now)
    if observed.now < begins_at:
        return [], begins_at
    return [candidate.worker for candidate in sorted(waiting, key=lambda c: (c.index, c.worker))], None


def _begin(state: Preflight, pairs: Pairs, observed: Observed, **more: Any) -> Preflight:
    reported = [agent.check.number for agent in observed.agents.values()]
    number = 1 + max(state.number, *reported)  # an agent makes no check of a number that it has made
    return replace(state, number=number, stage=Stage(number, pairs, observed.now, **more))


def _requests(job: Job, stage: Stage, ready: Mapping[str, Candidate]) -> dict[str, CheckRequest | None]:
    """What each worker of a check is asked to measure."""
    assert job.preflight is not None
    requests: dict[str, CheckRequest | None] = {}
    for pair in stage.pairs:
        members = [ready[worker] for worker in pair if worker in ready]
        first_ranks = [0, *accumulate(member.processes for member in members)]
        for member, first_rank in zip(members, first_ranks, strict=False):
            requests[member.worker] = CheckRequest(
                number=stage.number,
                first_rank=first_rank,
                world_size=first_ranks[-1],
                store_address=members[0].address,
                store_port=members[0].port or job.store_port,
                seconds=job.preflight.seconds,
            )
    return requests
