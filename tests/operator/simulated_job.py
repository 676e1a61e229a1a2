"""A job's world in pure code: pods, nodes and agents that behave, a planner, and faults.

No event loop, no cluster: time is a number. Each `settle` plays agents, kubelets and the planner
against each other until nothing changes any more, and checks after every plan what must always
hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from elastic_pytorch_operator.api.times import write_time
from elastic_pytorch_operator.model.actions import CreatePod, CreateService, DeletePod, PatchStatus
from elastic_pytorch_operator.model.observed import (
    AgentState,
    AgentView,
    Nodes,
    NodeView,
    Observed,
    PodView,
)
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.failed_writes import (
    PODS,
    REFUSED_SECONDS,
    FailedWrite,
    FailedWrites,
)
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.rounds.membership import domains_of
from elastic_pytorch_operator.reconcile.observe import heard_before, recover_round
from elastic_pytorch_operator.spec.job import Job

from tests.operator.builders import TIME, condition

STEP_SECONDS = 0.25
FINE_SECONDS = 10.0
POD_START_SECONDS = 0.5
AGENT_START_SECONDS = 1.5
WAITING = (AgentState.PREPARING, AgentState.READY)


@dataclass
class SimulatedJob:
    """One job on nodes with room for a number of pods each.

    Attributes:
        hung_nodes: whose kubelets confirm nothing, and whose pods do not speak.
        rejecting_nodes: whose kubelets reject every pod.
        refusing: a policy refuses every pod.
        failing_writes: how many of the next actions the API server fails.
        saving: workers that save at the step boundary of their round, and take up no newer one
            before they are done.
        wedged: workers with a process that outlives SIGKILL: their agents never end stopping them.
        processes: how many the pods on a node run, if not one.
        sidecars: each pod has another container, which runs on until its pod is deleted.
        agent_start_seconds: from a pod's creation to the first report of its agent.
        connects_at: when each agent that this operator has not heard yet connects to it.
        crowded: those that have not connected yet wait to be let in.
        writes_status: whether the API server accepts statuses.
        step_seconds: from one plan to the next.
        beside: other jobs, whose pods take room on the same nodes.
    """

    job: Job
    nodes: dict[str, NodeView] = field(
        default_factory=lambda: {f"node-{n}": NodeView(f"node-{n}") for n in range(3)}
    )
    pods_per_node: int = 2
    sidecars: bool = False
    now: float = 1000.0
    pods: dict[str, PodView] = field(default_factory=dict)
    agents: dict[str, AgentView] = field(default_factory=dict)
    hung_nodes: set[str] = field(default_factory=set)
    rejecting_nodes: set[str] = field(default_factory=set)
    refusing: bool = False
    saving: set[str] = field(default_factory=set)
    wedged: set[str] = field(default_factory=set)
    processes: dict[str, int] = field(default_factory=dict)
    failing_writes: int = 0
    agent_start_seconds: float = AGENT_START_SECONDS
    connects_at: dict[str, float] = field(default_factory=dict)
    crowded: bool = False
    arrived_at: float = 0.0
    last_heard_at: float = 0.0
    writes_status: bool = True
    step_seconds: float = STEP_SECONDS
    beside: list["SimulatedJob"] = field(default_factory=list)
    round: Round | None = None
    memory: Memory = field(default_factory=Memory)
    service: bool = False
    listening_since: float = 0.0
    declared: list[Round] = field(default_factory=list)
    made: int = 0
    last: Plan = field(default_factory=lambda: Plan(Memory()))
    # The seconds of the first account of this operator, and until when they count.
    accounted: tuple[float, float] | None = None

    def observe(self) -> Observed:
        pods = tuple(self.pods.values())
        agents = {
            name: a
            for name, a in self.agents.items()
            if name in self.pods and name not in self.connects_at
        }
        return Observed(
            now=self.now,
            time=TIME,
            pods=pods,
            nodes=Nodes(self.nodes),
            agents=agents,
            round=self.round or recover_round(pods, agents, self.listening_since),
            listening_since=self.listening_since,
            last_heard_at=self.last_heard_at,
            arrived_at=self.arrived_at,
            lets_in_since=self.now if self.crowded and self.connects_at else 0.0,
            heard_before=heard_before(self.job, pods),
            service_exists=self.service,
        )

    @property
    def members(self) -> tuple[str, ...]:
        return self.round.workers if self.round else ()

    @property
    def sizes(self) -> list[int]:
        """Of all rounds that were declared."""
        return [declared.size for declared in self.declared]

    @property
    def status(self) -> Mapping[str, Any]:
        return self.job.status

    def condition(self, type_: str) -> Mapping[str, Any]:
        return condition(self.status, type_)

    def reconcile(self) -> Plan:
        todo = self.last = plan(self.job, self.observe(), self.memory)
        self.memory = todo.memory
        self._check_account()
        if todo.round is not None:
            self._check_round(todo.round)
            self.round = todo.round
            self.declared.append(todo.round)
        for action in todo.actions:
            if self.failing_writes:
                self.failing_writes -= 1
                continue
            match action:
                case CreatePod() if (
                    PODS in self.memory.answers.failed
                    and self.now < self.memory.answers.failed[PODS].retry_at
                ):
                    pass
                case CreatePod() if self.refusing:
                    until = self.now + REFUSED_SECONDS
                    self._answer({PODS: FailedWrite("denied by a policy", until, lasting=True)})
                case CreatePod():
                    self._create_pod(action)
                    self._answer({})
                case DeletePod(name, _, _, force):
                    self.delete_pod(name, force=force)
                case PatchStatus(status):
                    if self.writes_status:
                        self.job = replace(self.job, status=status)
                case CreateService():
                    self.service = True
        # Fewer spares may have been asked for a moment ago.
        if any(isinstance(action, CreatePod) for action in todo.actions):
            wanted = {
                p.index
                for p in self.pods.values()
                if not p.ended and not p.deleting and p.node not in self.hung_nodes
            }
            most = self.job.maximum + self.job.spares
            assert len(wanted) <= most, (
                "more pods than maxReplicas and spares, beside replacements of workers that "
                "still train"
            )
        return todo

    def _answer(self, failed: FailedWrites) -> None:
        self.memory = replace(self.memory, answers=replace(self.memory.answers, failed=failed))

    def settle(self, seconds: float = 60.0) -> None:
        """Lets time pass in steps of a second after the first ten, or all in such steps."""
        until = self.now + seconds
        fine_until = self.now + (FINE_SECONDS if seconds <= 60.0 else 0.0)
        while self.now < until:
            self.now += self.step_seconds if self.now < fine_until else max(self.step_seconds, 1.0)
            self.schedule()
            self.live()
            self.reconcile()

    def _check_round(self, round_: Round) -> None:
        indices = [self.pods[worker].index for worker in round_.workers]
        assert len(set(indices)) == len(indices), f"two workers of one index: {round_}"
        size = self.job.unit_replicas
        for first in range(0, len(indices), size):
            begin = indices[first] - indices[first] % size
            unit = list(range(begin, begin + size))
            assert indices[first : first + size] == unit, f"a unit is torn: {round_}"
        domains = domains_of(self.job, self.observe())
        blocks = [
            domain
            for domain, _ in groupby(map(domains.get, round_.workers[:: self.job.unit_replicas]))
        ]
        assert len(blocks) == len(set(blocks)), f"a domain is torn: {round_}"
        assert round_.size == 0 or self.job.minimum <= round_.size <= self.job.maximum, (
            f"outside min..max: {round_}"
        )
        assert round_.number > (self.round.number if self.round else 0), "round numbers must grow"
        for worker in round_.workers:
            assert worker in self.pods, f"{worker} is not there"
            assert not self.pods[worker].ended, f"{worker} has ended"

    def _check_account(self) -> None:
        """Each second is spent on one activity, also if what was done in it is found out later."""
        if (account := self.memory.account) is None or account.activity is None:
            self.accounted = None  # not yet, or no more
            return
        seconds = sum(spent.seconds for spent in account.spent.values())
        first, since = self.accounted = self.accounted or (seconds, account.until)
        assert abs(seconds - first - (account.until - since)) < 1e-6, (
            f"seconds were left out, or counted twice: {account}"
        )
        assert min((spent.seconds for spent in account.spent.values()), default=0.0) >= -1e-6, (
            f"less than no time: {account}"
        )

    def _create_pod(self, action: CreatePod) -> None:
        self.made += 1
        name = f"w{action.index}-{self.made}"
        pod = PodView(
            name,
            f"uid-{name}",
            action.index,
            avoids=frozenset(action.avoid),
            prefers_others_to=frozenset(action.unwanted),
            created_at=self.now,
            ended_at=self.now,
            failed_starts=action.failed_starts,
            group_restarts=action.group_restarts,
            creation_time=write_time(datetime.fromtimestamp(self.now, UTC)),
        )
        self.pods[name] = pod

    def schedule(self) -> None:
        for pod in [p for p in self.pods.values() if not p.node and not p.deleting]:
            self.place(pod)

    def place(self, pod: PodView) -> None:
        """The scheduler finds a node for a pod, or none."""
        there = [p for job in (self, *self.beside) for p in job.pods.values()]
        load = {
            name: sum(p.node == name and (not p.ended or p.lingers) for p in there)
            for name, node in self.nodes.items()
            if node.ready and not node.unschedulable and not node.taints
        }
        free = [
            name
            for name, pods in load.items()
            if pods < self.pods_per_node and name not in pod.avoids
        ]
        if free:
            node = min(
                free,
                key=lambda name: (
                    name in pod.prefers_others_to,
                    _repels(self.nodes[name]),
                    load[name],
                    name,
                ),
            )
            self.pods[pod.name] = replace(pod, node=node, unschedulable=False, created_at=self.now)
        else:
            self.pods[pod.name] = replace(pod, unschedulable=True)

    def live(self) -> None:
        """Kubelets start and stop pods; agents come up, take up rounds and speak."""
        for pod in list(self.pods.values()):
            if pod.node in self.hung_nodes or not pod.node:
                continue
            if pod.deleting:
                self.pods.pop(pod.name)
                self.agents.pop(pod.name, None)
            elif pod.ended:
                continue
            elif not pod.started and pod.node in self.rejecting_nodes:
                self.end_pod(pod.name, exit_code=None, reason="UnexpectedAdmissionError")
            elif not pod.started and self.now - pod.created_at >= POD_START_SECONDS:
                self.pods[pod.name] = replace(
                    pod, started=True, phase="Running", address=f"10.0.0.{pod.index}"
                )
            elif pod.started:
                self._speak(pod)

    def _speak(self, pod: PodView) -> None:
        agent = self.agents.get(pod.name)
        if agent is None:
            if self.now - pod.created_at >= self.agent_start_seconds:
                self.agents[pod.name] = AgentView(
                    pod.name,
                    f"i-{pod.name}",
                    AgentState.READY,
                    0,
                    0,
                    0,
                    self.processes.get(pod.node, 1),
                    29500,
                    self.now,
                    self.now,
                )
            return
        if pod.name in self.connects_at:
            if self.now < self.connects_at[pod.name]:
                return
            del self.connects_at[pod.name]
            if agent.round:
                self.arrived_at = self.now
        agent = replace(agent, heard_at=self.now)
        if self.listening_since:
            self.last_heard_at = self.now
        if (
            self.round is not None
            and self.round.number > agent.round
            and pod.name not in self.saving
        ):
            rank = self.round.ranks.get(pod.name)
            if pod.name in self.wedged:
                if agent.state is not AgentState.STOPPING:
                    agent = replace(agent, state=AgentState.STOPPING, state_since=self.now)
            elif rank is not None:
                agent = replace(
                    agent,
                    state=AgentState.RUNNING,
                    round=self.round.number,
                    rank=rank,
                    world_size=self.round.size,
                    state_since=self.now,
                    restarts=agent.restarts + (agent.round > 0),
                    failure=None,
                    progress=replace(agent.progress, first_step=None),
                )
            elif agent.state not in WAITING:
                agent = replace(
                    agent,
                    state=AgentState.READY,
                    state_since=self.now,
                    failure=None,
                    newest=self.round.number,
                )
        self.agents[pod.name] = agent

    def end_pod(self, name: str, *, exit_code: int | None, reason: str = "Error") -> None:
        """Ends a pod's training container; None: its kubelet rejects the pod."""
        pod = replace(
            self.pods[name],
            exit_code=exit_code,
            exit_reason=reason,
            started=False,
            ended_at=self.now,
        )
        if self.sidecars and pod.node and exit_code is not None:
            self.pods[name] = replace(pod, sidecar_runs=True)
        else:
            self.pods[name] = replace(pod, phase="Succeeded" if exit_code == 0 else "Failed")

    def delete_pod(self, name: str, *, force: bool = False) -> None:
        pod = self.pods.get(name)
        if pod is None:
            return
        if force or (pod.ended and not pod.lingers) or not pod.node:
            self.pods.pop(name)
            self.agents.pop(name, None)
        else:
            self.pods[name] = replace(
                pod, deleting=True, ended_before_deletion=pod.ended_before_deletion or pod.ended
            )


def _repels(node: NodeView) -> bool:
    """Whether a taint has the scheduler prefer other nodes."""
    return (
        node.end is not None
        and node.end.taint is not None
        and node.end.taint.effect == "PreferNoSchedule"
    )
