"""Which ranks are slow: `status.stragglers`.

Pure: what the agents have measured in, what users should know out.

In data-parallel training every step of every rank takes as long as the slowest rank needs, so a
rank is judged by its work: its time in a step without its waits for the others. Agents report the
median of each window of a few seconds. A rank is slow in a window if it works for longer than the
group's median by a factor, and if that costs a part of the step that matters. It becomes a
straggler when it was slow in several windows in a row, and remains one until it was clearly not
slow in as many.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.model.actions import RecordEvent
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Observed
from elastic_pytorch_operator.model.round import Round

SLOW = 1.3  # times the median of the group
CALM = 1.15  # not slow any more
SHARE_OF_STEP = 0.05  # that a rank costs the others, to be slow
WINDOWS = 3  # in a row, to become or to cease to be a straggler
# Of each round: compilers, caches and loaders make the first steps unlike those that follow.
WARM_UP_WINDOWS = 1
MIN_RANKS = 3  # of two, one cannot say which is as it should be
MAX_LISTED = 16
MAX_EVENTS = 4  # at once

Place = tuple[str, int]  # a worker, and the local rank of a process in it


class Work(NamedTuple):
    seconds: float
    step_seconds: float


@dataclass(frozen=True, slots=True)
class Straggler:
    worker: str
    local_rank: int
    rank: int
    node: str
    slowdown: float  # of its work, as a multiple of the group's median
    seconds: float  # of its work in a step
    median_seconds: float  # of the group

    @property
    def place(self) -> Place:
        """Which process it is, whatever its rank."""
        return self.worker, self.local_rank

    def as_status(self) -> dict[str, Any]:
        found = {"rank": self.rank, "worker": self.worker, "localRank": self.local_rank}
        if self.node:
            found |= {"node": self.node}
        return {
            **found,
            "slowdown": f"{self.slowdown:.1f}",
            "medianSeconds": f"{self.median_seconds:.2g}",
        }


@dataclass(frozen=True, slots=True)
class Stragglers:
    slow: tuple[Straggler, ...] = ()  # the slowest first
    round: int = 0  # in which they were measured
    windows: int = 0  # how many windows of it all ranks had reported when they were last looked at
    # In how many windows in a row a rank was the opposite of what it counts as: slow, or not slow
    # any more.
    turning: Mapping[Place, int] = field(default_factory=dict)

    def as_status(self) -> list[dict[str, Any]]:
        return [straggler.as_status() for straggler in self.slow[:MAX_LISTED]]


NO_STRAGGLERS = Stragglers()


def read_stragglers(status: Mapping[str, Any]) -> Stragglers:
    return Stragglers(
        tuple(
            Straggler(
                worker=str(entry.get("worker", "")),
                local_rank=int(entry.get("localRank", 0)),
                rank=int(entry.get("rank", 0)),
                node=str(entry.get("node", "")),
                slowdown=float(entry.get("slowdown", SLOW)),
                seconds=float(entry.get("slowdown", SLOW)) * float(entry.get("medianSeconds", 0.0)),
                median_seconds=float(entry.get("medianSeconds", 0.0)),
            )
            for entry in status.get("stragglers") or ()
        )
    )


def advance_stragglers(known: Stragglers, round_: Round | None, observed: Observed) -> Stragglers:
    """Looks at the next window of a group, once all ranks have reported it.

    Those that are known stay over a change of the group, as long as their workers are in it and it
    is large enough to measure.
    """
    members = round_.ranks if round_ is not None else {}
    agents = [agent for name in members if (agent := observed.agents.get(name))]
    processes = len(members) * max((agent.local_world_size for agent in agents), default=1)
    if round_ is None:
        return known
    if processes < MIN_RANKS:
        return NO_STRAGGLERS
    if known.round != round_.number:
        there = (straggler for straggler in known.slow if straggler.worker in members)
        known = Stragglers(
            tuple(_in_round(each, round_, observed) for each in there), round_.number
        )
    reported = [
        a
        for a in agents
        if a.round == round_.number and a.state is AgentState.RUNNING and a.progress.work_windows
    ]
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
            slow.append(
                Straggler(
                    *place, *_where(place, "", round_, observed), slowdown, each.seconds, typical
                )
            )
    slow.sort(key=lambda straggler: (-straggler.slowdown, straggler.rank))
    return replace(known, slow=tuple(slow), turning=turning)


def _turns(work: Work, typical: float, *, listed: bool) -> bool:
    """Whether a window speaks against what a rank counts as."""
    costs = work.seconds - typical
    if listed:
        return work.seconds < CALM * typical or costs < SHARE_OF_STEP / 2 * work.step_seconds
    return work.seconds >= SLOW * typical and costs >= SHARE_OF_STEP * work.step_seconds


def _in_round(straggler: Straggler, round_: Round, observed: Observed) -> Straggler:
    rank, node = _where(straggler.place, straggler.node, round_, observed)
    return replace(straggler, rank=rank, node=node)


def _where(place: Place, node: str, round_: Round, observed: Observed) -> tuple[int, str]:
    worker, local_rank = place
    agent, pod = observed.agents.get(worker), observed.pods_by_name.get(worker)
    return round_.ranks[worker] * (
        agent.local_world_size if agent else 1
    ) + local_rank, pod.node if pod else node


def record_stragglers(before: Stragglers, after: Stragglers) -> list[RecordEvent]:
    """Returns an event for each worker with ranks that have become slow, or are no longer slow; a few at most."""
    known, found = ({straggler.place for straggler in each.slow} for each in (before, after))
    begun = _by_worker(straggler for straggler in after.slow if straggler.place not in known)
    same = before.round == after.round  # with another round, those that have left are not better
    over = _by_worker(
        straggler for straggler in before.slow if same and straggler.place not in found
    )
    return [
        *(
            RecordEvent(names.STRAGGLER, note, warning=True)
            for note in _limit([_begun(group) for group in begun])
        ),
        *(
            RecordEvent(names.STRAGGLER_RECOVERED, note)
            for note in _limit([_over(group) for group in over])
        ),
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
    return [
        *notes[: MAX_EVENTS - 1],
        f"{notes[MAX_EVENTS - 1]}. The same applies to {left} other workers",
    ]


def _begun(group: Sequence[Straggler]) -> str:
    worst = max(group, key=lambda straggler: straggler.slowdown)
    one = len(group) == 1
    return (
        f"{_who(group)} {'works' if one else 'work'} {worst.slowdown:.1f} times as long in a step as the group's median rank: "
        f"{worst.seconds:.2g} s instead of {worst.median_seconds:.2g} s. The others wait"
    )


def _over(group: Sequence[Straggler]) -> str:
    return f"{_who(group)} {'is' if len(group) == 1 else 'are'} about as fast as the group's median rank again"


def _who(group: Sequence[Straggler]) -> str:
    ranks = [
        str(straggler.rank) for straggler in sorted(group, key=lambda straggler: straggler.rank)
    ]
    listed = ranks[0] if len(ranks) == 1 else f"{', '.join(ranks[:-1])} and {ranks[-1]}"
    where = f"{group[0].worker} on {group[0].node}" if group[0].node else group[0].worker
    return f"{'Rank' if len(ranks) == 1 else 'Ranks'} {listed} ({where})"
