"""A stock job's world in pure code: pods and nodes, a planner, and ends of pods."""

from dataclasses import dataclass, field, replace
from typing import Any

from elastic_pytorch_operator.manifests.worker_pod import NODE_LOSS_SECONDS
from elastic_pytorch_operator.model.actions import (
    CreatePod,
    CreateService,
    CreateStore,
    DeletePod,
    PatchStatus,
    RecordEvent,
)
from elastic_pytorch_operator.model.observed import Nodes, NodeView, Observed, PodView
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.spec.job import Job

from tests.operator.builders import TIME

STEP_SECONDS = 0.5
POD_START_SECONDS = 1.0


@dataclass
class StockSimulation:
    """One job on three nodes.

    Attributes:
        hung_nodes: whose kubelets confirm nothing.
        not_ready_since: when each node that is not ready was first seen so.
        full: no new pod finds a place.
        sidecars: each worker pod has another container, which runs on until its pod is deleted.
        made: the rendezvous of each worker pod ever made, in order.
        told: the events.
    """

    job: Job
    nodes: dict[str, NodeView] = field(
        default_factory=lambda: {f"node-{n}": NodeView(f"node-{n}") for n in range(3)}
    )
    now: float = 1000.0
    pods: dict[str, PodView] = field(default_factory=dict)
    hung_nodes: set[str] = field(default_factory=set)
    not_ready_since: dict[str, float] = field(default_factory=dict)
    full: bool = False
    sidecars: bool = False
    memory: Memory = field(default_factory=Memory)
    service: bool = False
    made: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    count: int = 0

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.job.status)

    def of(self, role: str) -> list[PodView]:
        return sorted(
            (pod for pod in self.pods.values() if pod.role == role),
            key=lambda pod: (pod.index, pod.created_at),
        )

    def running(self, role: str = "worker") -> list[PodView]:
        return [pod for pod in self.of(role) if pod.started and not pod.deleting]

    def observe(self) -> Observed:
        return Observed(
            now=self.now,
            time=TIME,
            pods=tuple(self.of("worker")),
            stores=tuple(self.of("store")),
            nodes=Nodes(self.nodes),
            service_exists=self.service,
        )

    def reconcile(self) -> Plan:
        """One plan, carried out and checked."""
        todo = plan(self.job, self.observe(), self.memory)
        self.memory = todo.memory
        assert todo.round is None, "there is nobody to declare it to"
        for action in todo.actions:
            match action:
                case CreatePod(index, rendezvous=rendezvous, failed_starts=failed_starts):
                    self._make(f"w{index}", index, "worker", rendezvous, failed_starts)
                    self.made.append(rendezvous)
                case CreateStore(rendezvous):
                    self._make("store", 0, "store", rendezvous)
                case DeletePod(name, _, _, force):
                    self.delete(name, force=force)
                case PatchStatus(status):
                    self.job = replace(self.job, status=status)
                case CreateService():
                    self.service = True
                case RecordEvent(reason, note):
                    self.told.append(f"{reason}: {note}")
        alive = [
            pod
            for pod in self.of("worker")
            if not pod.ended and not pod.deleting and pod.node not in self.hung_nodes
        ]
        assert len(alive) <= self.job.maximum, "more pods than maxReplicas"
        assert len({pod.rendezvous for pod in alive}) <= 1, (
            "two groups at once would spoil each other's checkpoints"
        )
        assert len([s for s in self.of("store") if not s.ended and not s.deleting]) <= 1
        return todo

    def settle(self, seconds: float = 30.0) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += STEP_SECONDS
            for pod in list(self.pods.values()):
                self._live(pod)
            self.reconcile()

    def _make(
        self, stem: str, index: int, role: str, rendezvous: int, failed_starts: tuple[str, ...] = ()
    ) -> None:
        self.count += 1
        name = f"{stem}-{self.count}"
        self.pods[name] = PodView(
            name,
            f"uid-{name}",
            index,
            created_at=self.now,
            ended_at=self.now,
            role=role,
            rendezvous=rendezvous,
            failed_starts=failed_starts,
        )

    def _live(self, pod: PodView) -> None:
        """What schedulers, kubelets and the taint of a node that is not ready do."""
        node = self.nodes.get(pod.node)
        if node is not None and not node.ready and not pod.ended:
            self.not_ready_since.setdefault(node.name, self.now)
            if self.now >= self.not_ready_since[node.name] + NODE_LOSS_SECONDS:
                pod = self.pods[pod.name] = replace(pod, deleting=True)
        if pod.node in self.hung_nodes:
            return
        if pod.deleting:
            self.pods.pop(pod.name)
        elif pod.ended:
            return
        elif not pod.node:
            ready = [node.name for node in self.nodes.values() if node.ready]
            if ready and not self.full:
                self.pods[pod.name] = replace(
                    pod, node=min(ready, key=lambda n: sum(p.node == n for p in self.pods.values()))
                )
        elif not pod.started and self.now - pod.created_at >= POD_START_SECONDS:
            self.pods[pod.name] = replace(
                pod, started=True, phase="Running", address=f"10.0.0.{self.count}"
            )

    def delete(self, name: str, *, force: bool = False) -> None:
        pod = self.pods.get(name)
        if pod is not None and (force or (pod.ended and not pod.lingers) or not pod.node):
            self.pods.pop(name)
        elif pod is not None:
            self.pods[name] = replace(
                pod, deleting=True, ended_before_deletion=pod.ended_before_deletion or pod.ended
            )

    def end(
        self, pod: PodView, exit_code: int | None = 1, message: str = "", reason: str = "Error"
    ) -> None:
        self.pods[pod.name] = replace(
            self.pods[pod.name],
            started=False,
            phase="Running" if self.sidecars else "Succeeded" if exit_code == 0 else "Failed",
            sidecar_runs=self.sidecars,
            exit_code=exit_code,
            exit_reason="Completed" if exit_code == 0 else reason,
            exit_message=message,
            ended_at=self.now,
        )

    def end_all(self, message: str) -> None:
        for pod in self.running():
            self.end(pod, message=message)

    def restart_operator(self) -> None:
        self.memory = Memory()
        self.pods = {
            name: replace(pod, ended_before_takeover=pod.ended) for name, pod in self.pods.items()
        }
