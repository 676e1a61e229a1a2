"""Which ranks are slow: `status.stragglers`.

A step takes every rank as long as the slowest one, so a rank is judged by its work: its time in a
step without its waits for the others. Agents report its median in windows of a few seconds.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.numbers import parse_quantity
from elastic_pytorch_operator.model.actions import RecordEvent
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Observed
from elastic_pytorch_operator.model.round import Round

SLOW = 1.3  # times the median of the group
CALM = 1.15  # not slow any more
SHARE_OF_STEP = 0.05  # that a slow rank costs the others
WINDOWS = 3  # in a row, to become or to cease to be a straggler
WARM_UP_WINDOWS = 1  # of each round: compilers, caches and loaders slow its first steps
MIN_RANKS = 3  # of two, neither is known to be as it should be
MAX_LISTED = 16
MAX_EVENTS = 4  # at once

Place = tuple[str, int]  # a worker, and a process's local rank


class Work(NamedTuple):
    seconds: float
    step_seconds: float


@dataclass(frozen=True, slots=True)
class Straggler:
    worker: str
    local_rank: int
    rank: int
    node: str
    slowdown: float  # of its work, as a multiple of the median
    seconds: float  # of work in a step
    median_seconds: float  # of the group

    @property
    def place(self) -> Place:
        return self.worker, self.local_rank

    def as_status(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "worker": self.worker,
            "localRank": self.local_rank,
            **({"node": self.node} if self.node else {}),
            "slowdown": f"{self.slowdown:.1f}",
            "medianSeconds": f"{self.median_seconds:.2g}",
        }


@dataclass(frozen=True, slots=True)
class Stragglers:
    slow: tuple[Straggler, ...] = ()  # the slowest first
    round: int = 0  # of the windows
    windows: int = 0  # that all ranks had reported at the last look
    # For how many windows in a row a rank was not what it counts as, slow or not slow.
    turning: Mapping[Place, int] = field(default_factory=dict)

    def as_status(self) -> list[dict[str, Any]]:
        return [straggler.as_status() for straggler in self.slow[:MAX_LISTED]]


NO_STRAGGLERS = Stragglers()


def read_stragglers(status: Mapping[str, Any]) -> Stragglers:
    return Stragglers(tuple(map(_read, status.get("stragglers") or ())))


def _read(entry: Mapping[str, Any]) -> Straggler:
    slowdown = parse_quantity(entry.get("slowdown")) or SLOW
    median_seconds = parse_quantity(entry.get("medianSeconds")) or 0.0
    return Straggler(
        worker=str(entry.get("worker", "")),
        local_rank=int(entry.get("localRank", 0)),
        rank=int(entry.get("rank", 0)),
        node=str(entry.get("node", "")),
        slowdown=slowdown,
        seconds=slowdown * median_seconds,
        median_seconds=median_seconds,
    )


def advance_stragglers(known: Stragglers, round_: Round | None, observed: Observed) -> Stragglers:
    """Looks at the next window of a group, once all ranks have reported it."""
    if round_ is None:
        return known
    members, agents = round_.ranks, observed.agents_in(round_)
    processes = len(members) * max((agent.local_world_size for agent in agents), default=1)
    if processes < MIN_RANKS:
        return NO_STRAGGLERS
    if known.round != round_.number:
        there = (straggler for straggler in known.slow if straggler.worker in members)
        slow = tuple(_in_round(each, round_, observed) for each in there)
        known = Stragglers(slow, round_.number)
    running = (a for a in agents if a.round == round_.number and a.state is AgentState.RUNNING)
    reported = [agent for agent in running if agent.progress.work_windows]
    windows = min((agent.progress.work_windows or 0 for agent in reported), default=0)
    if windows <= max(known.windows, WARM_UP_WINDOWS):
        return known
    known = replace(known, windows=windows)
    work = _work_of_ranks(reported)
    if len(work) < MIN_RANKS:
        return known
    return _judge(known, work, round_, observed)


def _work_of_ranks(agents: Iterable[AgentView]) -> dict[Place, Work]:
    return {
        (agent.worker, local_rank): Work(seconds, agent.progress.step_seconds or seconds)
        for agent in agents
        for local_rank, seconds in enumerate(agent.progress.work_seconds[: agent.local_world_size])
        if seconds is not None
    }


def _judge(
    known: Stragglers, work: Mapping[Place, Work], round_: Round, observed: Observed
) -> Stragglers:
    typical = median(each.seconds for each in work.values())
    before = {straggler.place: straggler for straggler in known.slow}
    turning, slow = {}, [straggler for place, straggler in before.items() if place not in work]
    for place, each in work.items():
        listed = place in before
        if _turns(each, typical, listed=listed):
            turning[place] = known.turning.get(place, 0) + 1
        if turning.get(place, 0) >= WINDOWS:
            listed = not listed
            del turning[place]
        if listed:
            slowdown = each.seconds / typical if typical else SLOW
            found = Straggler(*place, 0, "", slowdown, each.seconds, typical)
            slow.append(_in_round(found, round_, observed))
    slow.sort(key=lambda straggler: (-straggler.slowdown, straggler.rank))
    return replace(known, slow=tuple(slow), turning=turning)


def _turns(work: Work, typical: float, *, listed: bool) -> bool:
    costs = work.seconds - typical
    if listed:
        return work.seconds < CALM * typical or costs < SHARE_OF_STEP / 2 * work.step_seconds
    return work.seconds >= SLOW * typical and costs >= SHARE_OF_STEP * work.step_seconds


def _in_round(straggler: Straggler, round_: Round, observed: Observed) -> Straggler:
    worker = straggler.worker
    agent, pod = observed.agents.get(worker), observed.pods_by_name.get(worker)
    processes = agent.local_world_size if agent else 1
    rank = round_.ranks[worker] * processes + straggler.local_rank
    return replace(straggler, rank=rank, node=pod.node if pod else straggler.node)


def record_stragglers(before: Stragglers, after: Stragglers) -> list[RecordEvent]:
    known, found = ({straggler.place for straggler in each.slow} for each in (before, after))
    begun = _by_worker(straggler for straggler in after.slow if straggler.place not in known)
    same = before.round == after.round  # with another round, those that have left are not better
    over = _by_worker(each for each in before.slow if same and each.place not in found)
    slow, calm = _limit(list(map(_begun, begun))), _limit(list(map(_over, over)))
    return [
        *(RecordEvent(names.STRAGGLER, note, warning=True) for note in slow),
        *(RecordEvent(names.STRAGGLER_RECOVERED, note) for note in calm),
    ]


def _by_worker(stragglers: Iterable[Straggler]) -> list[list[Straggler]]:
    groups: defaultdict[str, list[Straggler]] = defaultdict(list)
    for straggler in stragglers:
        groups[straggler.worker].append(straggler)
    return list(groups.values())


def _limit(notes: Sequence[str]) -> list[str]:
    left = len(notes) - MAX_EVENTS
    if left <= 0:
        return list(notes)
    last = f"{notes[MAX_EVENTS - 1]}. The same applies to {left} other workers"
    return [*notes[: MAX_EVENTS - 1], last]


def _begun(group: Sequence[Straggler]) -> str:
    worst = max(group, key=lambda straggler: straggler.slowdown)
    one = len(group) == 1
    return (
        f"{_who(group)} {'works' if one else 'work'} {worst.slowdown:.1f} times as long in a step "
        f"as the group's median rank: {worst.seconds:.2g} s instead of "
        f"{worst.median_seconds:.2g} s. The others wait"
    )


def _over(group: Sequence[Straggler]) -> str:
    verb = "is" if len(group) == 1 else "are"
    return f"{_who(group)} {verb} about as fast as the group's median rank again"


def _who(group: Sequence[Straggler]) -> str:
    ranks = [str(rank) for rank in sorted(straggler.rank for straggler in group)]
    listed = ranks[0] if len(ranks) == 1 else f"{', '.join(ranks[:-1])} and {ranks[-1]}"
    where = f"{group[0].worker} on {group[0].node}" if group[0].node else group[0].worker
    return f"{'Rank' if len(ranks) == 1 else 'Ranks'} {listed} ({where})"
