"""The table of how long a silent worker may be alive, by what is known of the rest of its group.

A lost worker soon fails its peers, so the members that report show what the silent ones do. After
an outage of the API server, kube-proxy asks for the leader's address at growing intervals:
client-go's reflector waits up to 30 s, by chance twice as long, and a request from the time of the
outage may hang before that.
"""

import math
from functools import cached_property
from typing import NamedTuple

from elastic_pytorch_operator.model.failure import failed_members, is_unprepared
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Observed

STALLED_SECONDS = 10.0  # without a step, in a group that reports only in part to a new leader
TOGETHER_HEARTBEATS = 1.5  # between the last ones of members that fell silent at the same moment
NEW_LEADER, FAILURE, CLOSURE = "the change of leader", "the first failure", "the disconnection"
HEARTBEAT, ALIVE = "its last heartbeat", "its last heartbeat, or a later step of its group"
BREAKS = "a member fails, stops or is lost"
STALLS = f"{BREAKS}, or a script that reports steps makes none for {STALLED_SECONDS:.0f} s"


class Wait(NamedTuple):
    known: str  # of the worker and its group
    since: str  # what the seconds count from
    at_least_seconds: float  # it is not lost, and a new leader decides nothing about its job before
    at_most_seconds: float  # it is lost after; inf: only the API server can show that
    ends: str = ""  # what ends the wait between the two
    # It is lost, to follow its name, with places for `node` and for the `seconds` of silence.
    why: str = "has not reported since this operator began to lead"
    arrival_seconds: float = 1.0  # a new leader decides nothing so long after each agent's arrival
    crowded_seconds: float = 5.0  # the same if agents had to wait, or had to come again
    per_heartbeat: bool = False  # the seconds are per second between heartbeats


SILENT = "has been silent for {seconds:.1f} s"
# Without a report to a new leader. Agents try again every quarter of a second, and wait at most
# 2 s for the next try. A try to reach a dead leader times out after 5 s. Every node has the address
# after a minute, and a margin for what hangs.
LOST_WITH_LEADER = Wait(
    "its node has probably failed together with the previous leader",
    NEW_LEADER,
    1.0,
    1.0,
    "",
    "is on node {node}, which probably failed together with the previous leader",
    0.5,
    0.5,
)
NO_GROUP = Wait(
    "its group has broken, is complete without it, or never existed", NEW_LEADER, 5.0, 15.0
)
UNHEARD = Wait("no agent of its group has reported", NEW_LEADER, 10.0, 120.0, BREAKS)
RUNS = Wait(
    "every agent of its group that has reported is training",
    NEW_LEADER,
    5.0,
    120.0,
    STALLS,
    arrival_seconds=10.0,
    crowded_seconds=10.0,
)
# Without a report to any leader: ready workers wait for it, or another pod takes its place.
FIRST_REPORT = Wait(
    "its container runs, and its agent has never reported",
    "another's readiness",
    15.0,
    math.inf,
    "it reports",
)
NOT_STARTED = Wait(
    "its container has not started, on a node that has lost a worker",
    "its creation, or the loss",
    5.0,
    5.0,
    "",
    "does not start on node {node}, which has probably failed",
)
# Without further reports. After a failure, the operator asks all agents of the group to report.
LOST_NODE = Wait(
    "its node is not ready or has been removed", HEARTBEAT, 1.5, 1.5, per_heartbeat=True
)
DISCONNECTED = Wait(
    "a member has failed, and this worker has disconnected",
    CLOSURE,
    0.25,
    0.25,
    "",
    "has closed its connection while its peers failed",
)
PEER_FAILED = Wait(
    "a member has failed, and this worker has not reported since",
    FAILURE,
    1.2,
    1.2,
    "",
    f"{SILENT} while its peers failed",
)
GROUP_HEARD = Wait(
    "others of its group report, or it belongs to no group",
    ALIVE,
    3.0,
    3.0,
    "",
    SILENT,
    per_heartbeat=True,
)
GROUP_SILENT = Wait(
    "no agent of its group reports, but agents of other jobs do", ALIVE, 30.0, 30.0, "", SILENT
)
# The set-up may starve its heartbeats, as it uses all CPU time of the pod, and costs minutes.
PREPARES = Wait(
    "its script runs its set-up before its group exists", HEARTBEAT, 60.0, 60.0, "", SILENT
)
DEAF = Wait(
    "no agent of any job reports", "each plan", 10.0, math.inf, "an agent of any job reports"
)
TABLE = (
    *(LOST_WITH_LEADER, NO_GROUP, UNHEARD, RUNS, FIRST_REPORT, NOT_STARTED),
    *(LOST_NODE, DISCONNECTED, PEER_FAILED, GROUP_HEARD, GROUP_SILENT, PREPARES, DEAF),
)
# Also for all agents of all jobs, before this operator is considered deaf.
SILENCE_SECONDS = GROUP_HEARD.at_most_seconds
# A try that began while no agent could reach the operator times out then; silences count from it.
RECONNECT_SECONDS = 5.0


class Delay(NamedTuple):
    """A sign that a leader lacks reports: it decides, and loses workers, so much later."""

    sign: str
    undecided_seconds: float
    lost_seconds: float


# Each agent connects once; 10,000 take one to two minutes.
ARRIVALS = Delay("agents of the job's earlier groups are still connecting", 300.0, 300.0)
CROWD = Delay("agents wait for the operator to accept their connections", 30.0, 60.0)
LATE = Delay("the operator's event loop is late", 0.0, 30.0)


class Silence(NamedTuple):
    """The row that applies to a worker, and until when it may be alive."""

    wait: Wait
    until: float


def lost_with_leader(observed: Observed) -> frozenset[str]:
    """The workers that were probably lost with the node of the previous leader.

    Three witnesses have to agree: that leader let its lease run out, the agent of a worker beside
    it is silent, and the worker's group has broken.
    """
    if not observed.lost_leader_node or not failed_members(observed):
        return frozenset()
    silent = observed.heard_before - observed.agents.keys()
    beside = (pod for pod in observed.pods if pod.node == observed.lost_leader_node)
    return frozenset(pod.name for pod in beside if pod.started and pod.name in silent)


def rest_of_group(observed: Observed) -> Wait:
    """For workers that have not reported to a new leader."""
    members = [agent for agent in observed.agents.values() if agent.round > 0]
    complete = observed.round is not None and observed.round.size == len(observed.round.members)
    if members and (complete or any(agent.state is not AgentState.RUNNING for agent in members)):
        return NO_GROUP
    before = (pod for pod in observed.pods if pod.name in observed.heard_before)
    heard = [pod.name in observed.agents for pod in before if pod.started and pod.stays]
    if not all(heard) and not (members and any(heard)):
        return UNHEARD
    return RUNS if members else NO_GROUP


def takeover_grace_until(observed: Observed) -> float | None:
    """Until when a new leader decides nothing about a job, monotonic seconds; None: it decides."""
    running = (pod.name for pod in observed.pods if pod.started and pod.stays)
    unheard = {name for name in running if name not in observed.agents}
    if not unheard:
        return None
    since, let_in_at = observed.listening_since, observed.lets_in_since
    wait = LOST_WITH_LEADER if lost_with_leader(observed) >= unheard else rest_of_group(observed)
    seconds = wait.crowded_seconds if let_in_at > since else wait.arrival_seconds
    all_in = min(observed.arrived_at + seconds, since + ARRIVALS.undecided_seconds)
    let_in = min(let_in_at + seconds, since + CROWD.undecided_seconds)
    until = max(since + wait.at_least_seconds, all_in, let_in)
    return until if observed.now < until else None


class Silences:
    def __init__(self, observed: Observed) -> None:
        self._observed, now = observed, observed.now
        members = observed.agents_in(observed.round)
        failed = failed_members(observed)
        self._failed_at = min((agent.state_since for agent in failed), default=math.inf)
        self._stepped_at = max((agent.progressed_at for agent in members), default=0.0)
        self._lost = lost_with_leader(observed)
        self._deaf = now >= observed.last_heard_at + SILENCE_SECONDS
        self._silence_seconds = SILENCE_SECONDS * observed.heartbeat_seconds
        self._latest = max((agent.heard_at for agent in members), default=now)
        group_heard = now < self._latest + self._silence_seconds
        self._group = GROUP_HEARD if group_heard else DEAF if self._deaf else GROUP_SILENT

    def unheard(self, worker: str) -> Silence:
        """Of a worker that has reported to an earlier leader only."""
        if worker not in self._lost:
            return self._unheard
        until = self._observed.listening_since + LOST_WITH_LEADER.at_most_seconds
        return Silence(LOST_WITH_LEADER, until)

    def heard(self, agent: AgentView) -> Silence:
        unprepared = is_unprepared(agent)
        if unprepared or agent.worker not in self._observed.ranks:
            deaf = self._deaf and self._observed.now >= agent.heard_at + self._silence_seconds
            wait = DEAF if deaf else PREPARES if unprepared else GROUP_HEARD
            return self.since(wait, agent.heard_at)
        if agent.heard_at <= self._failed_at < math.inf:
            silent, closed_at = self.since(PEER_FAILED, self._failed_at), agent.disconnected_since
            if closed_at is None:
                return silent
            return min(silent, self.since(DISCONNECTED, closed_at), key=lambda s: s.until)
        return self.since(self._row_of(agent), max(agent.heard_at, self._stepped_at))

    def is_put_off(self, agent: AgentView, silence: Silence) -> bool:
        """Whether each heartbeat delays the end of a silence, so that one is late before."""
        late_at = agent.heard_at + self._silence_seconds
        return self._observed.now < late_at <= silence.until

    def _row_of(self, agent: AgentView) -> Wait:
        """The row of a member: heartbeats that end together do so within one, and none is first."""
        silent = self._observed.now >= agent.heard_at + self._silence_seconds
        apart_seconds = TOGETHER_HEARTBEATS * self._observed.heartbeat_seconds
        together = self._latest < agent.heard_at + apart_seconds
        return GROUP_SILENT if self._group is GROUP_HEARD and silent and together else self._group

    def since(self, wait: Wait, since: float) -> Silence:
        # The fault is on this side, and no event says when other jobs report again.
        if wait is DEAF:
            return Silence(DEAF, self._observed.now + DEAF.at_least_seconds)
        seconds = wait.at_most_seconds
        if wait.per_heartbeat:
            seconds *= self._observed.heartbeat_seconds
        since = max(since, self._observed.heard_again_at + RECONNECT_SECONDS)
        return Silence(wait, _later(since, self._observed.on_time_since, LATE) + seconds)

    @cached_property
    def _unheard(self) -> Silence:
        observed, since = self._observed, self._observed.listening_since
        if self._deaf:
            return self.since(DEAF, since)
        wait = rest_of_group(observed)
        agents = (agent for agent in observed.agents.values() if agent.round > 0)
        steps = (agent.progressed_at for agent in agents if agent.progress.step is not None)
        until = min(since + wait.at_most_seconds, max(steps, default=math.inf) + STALLED_SECONDS)
        arrived = _later(since, observed.arrived_at, ARRIVALS)
        all_in = max(arrived, _later(since, observed.lets_in_since, CROWD))
        # No row waits for less after the last arrival.
        return Silence(wait, max(until, all_in + NO_GROUP.at_most_seconds))


def _later(since: float, sign: float, delay: Delay) -> float:
    return max(since, min(sign, since + delay.lost_seconds))
