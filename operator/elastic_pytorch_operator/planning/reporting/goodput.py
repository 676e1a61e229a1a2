"""What a job's time was spent on: `status.goodput`, as Google's ml-goodput-measurement defines it.

A plan knows only the activity of its moment, and since when. If that began before the plan before,
the time in between was booked under another activity, and moves.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition, has_ended
from elastic_pytorch_operator.api.times import seconds_between
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Observed
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.model.status_changes import GOODPUT
from elastic_pytorch_operator.planning.reporting.interruption import (
    ACTIVE,
    NO_INTERRUPTIONS,
    Interruption,
    Interruptions,
)
from elastic_pytorch_operator.planning.reporting.quota_conditions import WITHOUT_QUOTA
from elastic_pytorch_operator.spec.job import Job

TINY = 1e-6  # seconds, more than sums of floats are off by
ORDERLY = (names.WORKER_JOINED, names.WORKER_LEAVING, names.SCALED_DOWN, names.EVICTED)


class Activity(StrEnum):
    """docs/use/observability.md says when a job's time is spent on what."""

    TRAINING = "Training"
    REPEATING = "Repeating"
    STEPS_UNREPORTED = "StepsUnreported"
    STARTING = "Starting"
    PREPARING = "Preparing"
    WAITING_FOR_NODES = "WaitingForNodes"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    RECOVERING = "Recovering"
    RESIZING = "Resizing"
    SUSPENDED = "Suspended"
    SPARE = "Spare"  # of processes only: they wait while others train


@dataclass(frozen=True, slots=True)
class Now:
    activity: Activity | None  # None: the job has ended
    since: float | None = None
    processes: int = 0  # of workers, wanted or there, without spares
    spares: int = 0
    step_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    seconds: float = 0.0
    process_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Account:
    until: float
    activity: Activity | None
    since: float  # as far as this operator has seen
    spent: Mapping[Activity, Spent] = field(default_factory=dict)
    step_seconds: float = 0.0  # the last known; 0: never

    def as_status(self, time: str) -> dict[str, Any]:
        found: dict[str, Any] = {"time": time}
        if self.activity is not None:
            found["activity"] = self.activity.value
        whole = _whole_seconds(self.spent)
        booked = [activity for activity in Activity if activity in whole]
        found["seconds"] = {a.value: whole[a] for a in booked if a is not Activity.SPARE}
        found["processSeconds"] = {a.value: int(self.spent[a].process_seconds) for a in booked}
        return found


def advance_account(account: Account, moment: float, now: Now) -> Account:
    spent, same = dict(account.spent), now.activity is account.activity
    begun = moment if same or now.since is None else min(moment, max(now.since, account.since))
    _book(spent, account.activity, max(0.0, begun - account.until), now.processes)
    if not same:
        _move(spent, account.activity, now.activity, account.until - begun)
        _book(spent, now.activity, moment - max(begun, account.until), now.processes)
    if now.spares:
        waited = spent.get(Activity.SPARE, Spent()).process_seconds
        spent[Activity.SPARE] = Spent(0.0, waited + (moment - account.until) * now.spares)
    if now.activity is Activity.TRAINING:  # the script reports steps after all: it was starting
        _move(spent, Activity.STEPS_UNREPORTED, Activity.STARTING, math.inf)
        spent.pop(Activity.STEPS_UNREPORTED, None)
    step_seconds = now.step_seconds or account.step_seconds
    since = account.since if same else begun
    return Account(moment, now.activity, since, spent, step_seconds)


def book_interruption(account: Account, over: Interruption) -> Account:
    """Moves the time of the steps that are done again, as their first run was of no use."""
    spent = dict(account.spent)
    seconds = (over.steps_lost or 0) * account.step_seconds
    _move(spent, Activity.TRAINING, Activity.REPEATING, seconds)
    return replace(account, spent=spent)


def _whole_seconds(spent: Mapping[Activity, Spent]) -> dict[Activity, int]:
    """Their sum is that of all, rounded down (method of largest remainders)."""
    whole = {activity: int(each.seconds) for activity, each in spent.items()}
    short = int(sum(each.seconds for each in spent.values()) + TINY) - sum(whole.values())
    by_fraction = sorted(spent, key=lambda activity: whole[activity] - spent[activity].seconds)
    for activity in by_fraction[:short]:
        whole[activity] += 1
    return whole


def _book(
    spent: dict[Activity, Spent], activity: Activity | None, seconds: float, processes: int
) -> None:
    if activity is not None:
        known, process_seconds = spent.get(activity, Spent()), seconds * processes
        spent[activity] = Spent(known.seconds + seconds, known.process_seconds + process_seconds)


def _move(
    spent: dict[Activity, Spent], source: Activity | None, target: Activity | None, seconds: float
) -> None:
    there = spent.get(source, Spent()) if source is not None else Spent()
    moved = min(seconds, there.seconds)
    if source is None or moved <= 0:
        return
    share = there.process_seconds * moved / there.seconds
    spent[source] = Spent(there.seconds - moved, there.process_seconds - share)
    if target is not None:
        known = spent.get(target, Spent())
        spent[target] = Spent(known.seconds + moved, known.process_seconds + share)


def read_account(status: Mapping[str, Any], moment: float, time: str) -> Account | None:
    """The last activity of another leader's account goes on until now."""
    found = status.get(GOODPUT)
    # An older resource definition drops fields.
    if not isinstance(found, Mapping) or "time" not in found:
        return None
    seconds, process_seconds = (found.get(unit) or {} for unit in ("seconds", "processSeconds"))
    spent = {
        each: Spent(float(seconds.get(each, 0)), float(process_seconds.get(each, 0)))
        for each in Activity  # a later release may have more
        if each in seconds or each in process_seconds
    }
    activity = next((each for each in Activity if each == found.get("activity")), None)
    gap = seconds_between(found["time"], time)
    account = Account(moment - gap, activity, moment - gap, spent)
    now = Now(activity, processes=int(status.get("worldSize", 0)))
    return replace(advance_account(account, moment, now), since=moment)


def keep_account(
    job: Job,
    status: Mapping[str, Any],
    observed: Observed,
    round_: Round | None,
    account: Account | None,
    interruptions: Interruptions = NO_INTERRUPTIONS,
    resumed: Interruption | None = None,
) -> Account:
    now = find_activity(job, status, observed, round_, interruptions)
    account = (
        account
        or read_account(job.status, observed.now, observed.time)
        or Account(observed.now, now.activity, observed.now)
    )
    account = advance_account(account, observed.now, now)
    return account if resumed is None else book_interruption(account, resumed)


def processes_of_a_worker(agents: Iterable[AgentView], job: Job) -> int:
    processes = max((agent.local_world_size for agent in agents), default=0)
    return processes or (int(job.nproc_per_node) if job.nproc_per_node.isdigit() else 1)


def find_activity(
    job: Job,
    status: Mapping[str, Any],
    observed: Observed,
    round_: Round | None,
    interruptions: Interruptions,
) -> Now:
    if has_ended(status):
        return Now(None)
    speeds = [a.steps_per_second for a in observed.agents.values() if a.steps_per_second]
    processes = processes_of_a_worker(observed.agents_in(round_), job)
    now = Now(
        Activity.TRAINING,
        processes=processes * int(status.get("replicas", 0)),
        spares=processes * int(status.get("readySpares", 0)),
        step_seconds=1 / max(speeds) if speeds else None,
    )
    current, last = interruptions.current, interruptions.last
    running = find_condition(status, names.RUNNING)
    if running.get("status") == "False":
        interrupted = current is not None
        return replace(now, activity=_waits_for(running["reason"], observed, interrupted))
    if running.get("status") != "True" or round_ is None:
        return now  # no agent has reported to a new leader: the group probably trains
    if current is not None:
        activity = Activity.RESIZING if current.reason in ORDERLY else Activity.RECOVERING
        return replace(now, activity=activity, since=current.since)
    if last is not None and last.round == round_.number and last.step_before is not None:
        return replace(now, since=last.since + (last.seconds or 0.0))
    agents = observed.took_up(round_)
    stepped = [agent.progressed_at for agent in agents if agent.progress.first_step is not None]
    if stepped:
        return replace(now, since=min(stepped))
    if all(agent.state in ACTIVE for agent in agents):  # stock torchrun has no agents
        since = max((agent.state_since for agent in agents), default=round_.declared_at)
        return replace(now, activity=Activity.STEPS_UNREPORTED, since=since)
    return replace(now, activity=Activity.STARTING)


def _waits_for(reason: str, observed: Observed, interrupted: bool) -> Activity:
    if reason in (names.SUSPENDING, names.JOB_SUSPENDED):
        return Activity.SUSPENDED
    if reason in WITHOUT_QUOTA:
        return Activity.WAITING_FOR_QUOTA
    if reason in (names.BACKING_OFF, names.GROUP_RESTARTED):
        return Activity.RECOVERING
    unplaced = any(pod.stays and not pod.node for pod in observed.pods)
    if reason == names.SCHEDULE_TIMEOUT or unplaced:
        return Activity.WAITING_FOR_NODES
    if interrupted:
        return Activity.RECOVERING
    setting_up = any(agent.state is AgentState.PREPARING for agent in observed.agents.values())
    return Activity.PREPARING if setting_up else Activity.STARTING
