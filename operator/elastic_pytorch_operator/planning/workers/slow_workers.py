"""`resizePolicy.replaceStragglers`: a worker that stays slow is replaced on another node, one at a time, and rarely.

Its replacement is made first. When that is ready, both change places in one orderly round (evacuation.py). A move may be in vain: the next
node may be slow as well, or the script may give one rank more work than the others. So few are made, and a worker that is slow after a
move, too, is not moved again while it is slow, and not for a day.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.times import earliest, seconds_between
from elastic_pytorch_operator.model.actions import RecordEvent
from elastic_pytorch_operator.model.observed import AgentState, Observed, PodView
from elastic_pytorch_operator.model.operator_state import read_operator_state
from elastic_pytorch_operator.planning.target import Target
from elastic_pytorch_operator.planning.workers.suspect_nodes import others_have_room
from elastic_pytorch_operator.spec.job import Job, StragglerPolicy

HOUR_SECONDS = 3600.0
MOVES_PER_HOUR = 2  # each costs a pause, and takes a place elsewhere: where many nodes are slow, a job would never come to rest
REMEMBER_SECONDS = 24 * HOUR_SECONDS
MAX_REMEMBERED = 8  # moves; a day has no more
PREPARE_SECONDS = 1800.0  # for a replacement to become ready: its node, images and set-up take minutes
MAX_WATCHED = 4  # workers at once, of which two an hour can be moved


class Outcome(StrEnum):
    """What has come of a move."""

    REPLACED = "replaced"  # or the replacement is on its way
    STAYED = "stayed"  # the worker has been left where it is
    REPEATED = "repeated"  # the replacement is slow as well


class Moment(NamedTuple):
    """A moment by both of the operator's clocks: the next leader has another monotonic one."""

    at: float  # monotonic seconds
    time: str  # RFC 3339


@dataclass(frozen=True, slots=True)
class Move:
    """That a slow worker was to be replaced.

    Attributes:
        worker: its pod.
        index: of the pod.
        rank: of the pod in its group.
        node: that it left, or was to leave.
        slowdown: how many times the group's median its work was, in digits.
        begun: when its replacement was asked for.
        outcome: what has come of it.
    """

    worker: str
    index: int
    rank: int
    node: str
    slowdown: str
    begun: Moment
    outcome: Outcome = Outcome.REPLACED

    @property
    def why(self) -> str:
        """Why the worker leaves, to follow its name in a sentence."""
        return f"leaves node {self.node}, where it works {self.slowdown} times as long in a step as the group's median rank"

    def concerns(self, pod: PodView, rank: int) -> bool:
        """Whether it was a worker of the same index or the same rank: the data or the layers of a rank may be more than others have."""
        return pod.index == self.index or rank == self.rank


@dataclass(frozen=True, slots=True)
class SlowWorkers:
    """What is remembered.

    Attributes:
        since: since when workers have been slow enough to be replaced.
        moves: those of the last day, oldest first.
    """

    since: Mapping[str, Moment] = field(default_factory=dict)
    moves: Sequence[Move] = ()

    def as_state(self) -> dict[str, Any]:
        """As `status.operatorState` has it; empty if there is nothing to remember."""
        moves = [
            {
                "worker": move.worker,
                "index": move.index,
                "rank": move.rank,
                "node": move.node,
                "slowdown": move.slowdown,
                "time": move.begun.time,
                "outcome": str(move.outcome),
            }
            for move in self.moves
        ]
        found = {"since": {worker: moment.time for worker, moment in self.since.items()}, "moves": moves}
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Relief:
    """What becomes of slow workers.

    Attributes:
        memory: what to remember.
        leaving: those that are to leave their node, and why, to follow their names in a sentence: one, and spares on its node.
        nodes: where no replacement should go.
        kept: why workers that should be replaced are not, for people.
        news: events.
        recheck_at: when to decide again if nothing happens before, monotonic seconds; None: only on an event.
    """

    memory: SlowWorkers = SlowWorkers()
    leaving: Mapping[str, str] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()
    kept: Sequence[str] = ()
    news: Sequence[RecordEvent] = ()
    recheck_at: float | None = None


NO_RELIEF = Relief()


def relieve_slow_workers(
    job: Job, target: Target, observed: Observed, slow: Mapping[str, float], known: SlowWorkers, avoided: Collection[str]
) -> Relief:
    """Decides which slow worker is replaced now.

    Args:
        job: says which are.
        target: how many workers it is to have.
        observed: its pods, their nodes, and its round.
        slow: by worker with a straggler, how many times the group's median its work is.
        known: what was remembered.
        avoided: nodes that new pods keep away from for other reasons.
    """
    policy = job.straggler_policy
    if policy is None:
        return NO_RELIEF
    if observed.round is None or len(observed.ranks) < observed.round.size:  # a new leader does not know all members yet
        return Relief(known, nodes=_left_nodes(known))
    since = _slow_since(policy, observed, slow, known.since)
    memory = SlowWorkers(since, [move for move in known.moves if _is_remembered(move, since, observed)])
    going = next((move for move in memory.moves if move.outcome is Outcome.REPLACED and _serves(move.worker, observed)), None)
    if going is None:
        return _choose(policy, job, target, observed, slow, memory, avoided)
    give_up_at = going.begun.at + PREPARE_SECONDS + job.checkpoint_wait_seconds
    why = _why_stayed(going, slow, observed, give_up_at) if going.worker in observed.ranks else ""
    if why:
        memory = _with_outcome(memory, going, Outcome.STAYED)
        note = f"{going.worker} stays on node {going.node}: {why}"
        event = RecordEvent(names.STRAGGLER_KEPT, note)
        return Relief(memory, nodes=_left_nodes(memory), news=[event], recheck_at=observed.now)
    return _carry_on(going, observed, slow, memory, give_up_at)


def _slow_since(
    policy: StragglerPolicy, observed: Observed, slow: Mapping[str, float], known: Mapping[str, Moment]
) -> dict[str, Moment]:
    """Since when members have been slow enough without interruption: those that are known first, then the slowest."""
    enough = [worker for worker in slow if slow[worker] >= policy.slowdown and worker in observed.ranks]
    enough.sort(key=lambda worker: (worker not in known, -slow[worker], worker))
    now = Moment(observed.now, observed.time)
    return {worker: known.get(worker, now) for worker in enough[:MAX_WATCHED] if worker in observed.pods_by_name}


def _is_remembered(move: Move, since: Mapping[str, Moment], observed: Observed) -> bool:
    """Whether a move is of the last day, or one of which the replacement is slow to this day."""
    if observed.now < move.begun.at + REMEMBER_SECONDS:
        return True
    pods, ranks = observed.pods_by_name, observed.ranks
    return move.outcome is Outcome.REPEATED and any(move.concerns(pods[worker], ranks[worker]) for worker in since)


def _serves(worker: str, observed: Observed) -> bool:
    pod = observed.pods_by_name.get(worker)
    return pod is not None and not (pod.ended or pod.deleting)


def _with_outcome(memory: SlowWorkers, move: Move, outcome: Outcome) -> SlowWorkers:
    moves = [replace(each, outcome=outcome) if each is move else each for each in memory.moves]
    return replace(memory, moves=moves)


def _why_stayed(move: Move, slow: Mapping[str, float], observed: Observed, give_up_at: float) -> str:
    """Why a member is not replaced after all; empty: it is."""
    if move.worker not in slow:
        return "it is no longer slow"
    if any(pod.unschedulable and move.node in pod.avoids for pod in observed.pods):
        return "no other node has room for its replacement"
    return "its replacement has not become ready in time" if observed.now >= give_up_at else ""


def _left_nodes(memory: SlowWorkers) -> frozenset[str]:
    """The nodes that slow workers have left, unless the script was slow, not the node."""
    return frozenset(move.node for move in memory.moves if move.outcome is Outcome.REPLACED)


def _slow_nodes(slow: Collection[str], memory: SlowWorkers, observed: Observed) -> frozenset[str]:
    """The nodes that are probably slow: those that were left, and those of stragglers whose own work is not to blame."""
    repeated = [move for move in memory.moves if move.outcome is Outcome.REPEATED]
    pods = [observed.pods_by_name[worker] for worker in slow if worker in observed.pods_by_name and worker in observed.ranks]
    blameless = (pod for pod in pods if not any(move.concerns(pod, observed.ranks[pod.name]) for move in repeated))
    return _left_nodes(memory) | {pod.node for pod in blameless}


def _carry_on(move: Move, observed: Observed, slow: Mapping[str, float], memory: SlowWorkers, give_up_at: float) -> Relief:
    """A spare on the same node is no replacement: it leaves as well."""
    there = [pod.name for pod in observed.pods if pod.node == move.node and pod.name not in observed.ranks]
    leaving = {worker: f"leaves node {move.node}, where a worker is slow" for worker in there if _serves(worker, observed)}
    leaving[move.worker] = move.why
    recheck_at = give_up_at if give_up_at > observed.now else None  # when the group goes on without it, only its pod is awaited
    return Relief(memory, leaving, _slow_nodes(slow, memory, observed), recheck_at=recheck_at)


def _choose(
    policy: StragglerPolicy,
    job: Job,
    target: Target,
    observed: Observed,
    slow: Mapping[str, float],
    memory: SlowWorkers,
    avoided: Collection[str],
) -> Relief:
    """Begins to replace the slowest worker that has been slow for long enough, if that is worth a try."""
    if len(observed.ranks) != target.size or _finishes(observed):
        return Relief(memory, nodes=_left_nodes(memory))
    kept: list[str] = []
    news: list[RecordEvent] = []
    rechecks: list[float] = []
    for worker in sorted(memory.since, key=lambda worker: (-slow[worker], worker)):
        slow_at, pod, rank = memory.since[worker].at, observed.pods_by_name[worker], observed.ranks[worker]
        if observed.now < slow_at + policy.after_seconds:
            rechecks.append(slow_at + policy.after_seconds)
            continue
        moves = [move for move in memory.moves if move.concerns(pod, rank)]
        for move in moves:
            after_seconds = slow_at - move.begun.at
            if move.outcome is Outcome.REPLACED and pod.node != move.node and 0 <= after_seconds < HOUR_SECONDS:
                memory = _with_outcome(memory, move, Outcome.REPEATED)
                news.append(RecordEvent(names.STRAGGLER_KEPT, _explain_repeated(pod, move), warning=True))
        moves = [move for move in memory.moves if move.concerns(pod, rank)]
        recent = [move for move in memory.moves if observed.now < move.begun.at + HOUR_SECONDS]
        slow_nodes = _slow_nodes(slow, memory, observed)
        if repeated := [move for move in moves if move.outcome is Outcome.REPEATED]:
            kept.append(_explain_repeated(pod, repeated[-1]))
        elif len(recent) >= MOVES_PER_HOUR or len(memory.moves) >= MAX_REMEMBERED:
            kept.append(
                f"{worker} is slow, and waits: {MOVES_PER_HOUR} slow workers an hour, {MAX_REMEMBERED} a day, are replaced"
            )
            rechecks.append((recent or memory.moves)[0].begun.at + (HOUR_SECONDS if recent else REMEMBER_SECONDS))
        elif any(move in recent for move in moves):
            kept.append(f"{worker} is slow, and stays on node {pod.node} for now: its replacement has been given up")
            rechecks.append(moves[-1].begun.at + HOUR_SECONDS)
        elif not _has_room(job, pod, observed, {*avoided, *slow_nodes}):
            kept.append(f"{worker} is slow, and stays on node {pod.node}: no other node could take its replacement")
        else:
            move = Move(worker, pod.index, rank, pod.node, f"{slow[worker]:.1f}", Moment(observed.now, observed.time))
            memory = replace(memory, moves=[*memory.moves, move])
            news.append(RecordEvent(names.SLOW_WORKER, f"{worker} {move.why}, as soon as its replacement is ready"))
            begun = _carry_on(move, observed, slow, memory, observed.now + PREPARE_SECONDS + job.checkpoint_wait_seconds)
            return replace(begun, news=news)
    return Relief(memory, nodes=_left_nodes(memory), kept=kept, news=news, recheck_at=earliest(*rechecks))


def _finishes(observed: Observed) -> bool:
    """Whether a worker has done its work, or has failed: then a change of the group is near anyway."""
    over = (AgentState.SUCCEEDED, AgentState.FAILED)
    return any(agent.state in over for worker, agent in observed.agents.items() if worker in observed.ranks)


def _explain_repeated(pod: PodView, move: Move) -> str:
    return (
        f"{pod.name} is slow on node {pod.node}, as {move.worker} was on node {move.node}: the script probably gives it more work "
        "than others, and it is not replaced again"
    )


def _has_room(job: Job, pod: PodView, observed: Observed, avoided: Collection[str]) -> bool:
    ending = {node.name for node in observed.nodes.values() if node.end is not None}
    return others_have_room({*avoided, *ending}, observed.nodes, observed.pods, job.template_of(pod.index))


def recall_slow_workers(job: Job, observed: Observed) -> SlowWorkers:
    """What a new leader knows: what the job's status says, as far as it can be read."""
    state = read_operator_state(job.status).slow_workers

    def moment(time: object) -> Moment:
        return Moment(observed.now - seconds_between(str(time), observed.time), str(time))

    try:
        moves = [
            Move(
                str(entry["worker"]),
                int(entry["index"]),
                int(entry["rank"]),
                str(entry["node"]),
                str(entry["slowdown"]),
                moment(entry["time"]),
                Outcome(entry["outcome"]),
            )
            for entry in state.get("moves", ())
        ]
        since = {str(worker): moment(time) for worker, time in state.get("since", {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return SlowWorkers()
    return SlowWorkers(since, moves[-MAX_REMEMBERED:])
