"""Nodes and their kubelets: they start pods, report their ends, are cut off and die."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.cluster.interface import PodIdentity

from tests.simulation.agents import Agent
from tests.simulation.api_server import ENDED, NAMESPACE, Server
from tests.simulation.clock import Clock

PODS_PER_NODE = 4
START_SECONDS = 1.0  # of a container, on average
IMPORT_SECONDS = 1.5  # from the container's start to the first heartbeat
REMOVE_SECONDS = 0.3  # from the end of a pod that is deleted to its removal
UNREADY_SECONDS = 40.0  # of silence of a kubelet, until the node controller says so
EVICT_SECONDS = 300.0  # by a node that is not ready
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "value": "", "effect": "NoExecute"}
CONTAINER = "pytorch"


@dataclass
class Node:
    """A machine.

    Attributes:
        up: its kubelet is heard.
        slow_seconds: by which its pods start later.
        outages: how often it has gone, so that what was planned for an earlier outage is dropped.
    """

    name: str
    up: bool = True
    slow_seconds: float = 0.0
    outages: int = 0


@dataclass
class Nodes:
    """All nodes, and the agents on them.

    Args:
        server: the API server.
        dice: decide how long pods take.
        clock: of the world.
        begin: makes the agent of a pod of a job.
    """

    server: Server
    dice: random.Random
    clock: Clock
    begin: Callable[[PodIdentity, str, str, str], Agent]
    nodes: dict[str, Node] = field(default_factory=dict)
    # By UID of the pod, until that is removed.
    agents: dict[str, Agent] = field(default_factory=dict)
    # Jobs and indices whose pods fill their disks.
    filling: set[tuple[str, str]] = field(default_factory=set)
    _started: dict[str, None] = field(default_factory=dict)
    _addresses: int = 0

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.server.watch(self._notice)

    def add(self, name: str) -> None:
        self.nodes[name] = Node(name)
        self.server.add_node(name, PODS_PER_NODE)

    def on(self, name: str) -> list[Agent]:
        return [agent for agent in self.agents.values() if agent.node == name and not agent.ended]

    def fail(self, name: str, *, dies: bool) -> None:
        node = self.nodes[name]
        node.up, node.outages = False, node.outages + 1
        for agent in self.on(name):
            if dies:
                agent.end(137, noticed=False)
            else:
                agent.lose_network()
        self.clock.after(UNREADY_SECONDS, partial(self._call_unready, node, node.outages))
        self.clock.after(EVICT_SECONDS, partial(self._evict_all, node, node.outages))

    def bring_back(self, name: str) -> None:
        """A node is heard again; containers that have died with it are reported as such."""
        node = self.nodes.get(name)
        if node is None or node.up:
            return
        node.up = True
        self.server.change_node(name, ready=True, taints=[])
        for pod in self._pods_on(name):
            uid = pod["metadata"]["uid"]
            agent = self.agents.get(uid)
            if agent is not None and not agent.ended:
                agent.regain_network()
                if pod["metadata"].get("deletionTimestamp"):
                    self._stop(pod)
            elif agent is not None and pod["status"].get("phase") not in ENDED:
                self._report_end(pod, 255, "Unknown")
            self._notice("Pod", "MODIFIED", pod)
        for agent in self.on(name):
            if self.server.find("Pod", agent.pod.name) is None:
                agent.regain_network()
                self._loop.call_later(1.0, agent.end, 137)

    def remove(self, name: str) -> None:
        if name not in self.nodes:
            return
        del self.nodes[name]
        for agent in self.on(name):
            agent.end(137)
        self.server.remove_node(name)
        for pod in self._pods_on(name):
            self.server.finish_deletion(NAMESPACE, pod["metadata"]["name"])

    def evict(self, name: str, reason: str = "EvictionByEvictionAPI") -> None:
        """Evicts a pod: the API server marks it, and then deletes it."""
        pod = self.server.find("Pod", name)
        if pod is not None and not pod["metadata"].get("deletionTimestamp"):
            condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
            self.server.set_pod_status(NAMESPACE, name, {"conditions": [condition]})
            self.server.begin_deletion(NAMESPACE, name)

    def exited(self, agent: Agent, code: int) -> None:
        """An agent's container has ended, which its kubelet reports if it is heard."""
        pod = self.server.find("Pod", agent.pod.name)
        node = self.nodes.get(agent.node)
        if pod is None or pod["metadata"]["uid"] != agent.pod.uid or node is None or not node.up:
            return
        reason = "Completed" if code == 0 else "Error"
        self._loop.call_later(0.1 + 0.3 * self.dice.random(), self._report_end, pod, code, reason)

    def _pods_on(self, name: str) -> list[Manifest]:
        return [pod for pod in self.server.all_of("Pod") if pod["spec"].get("nodeName") == name]

    def _call_unready(self, node: Node, outage: int) -> None:
        if not node.up and node.outages == outage:
            self.server.change_node(node.name, ready=False, taints=[UNREACHABLE])

    def _evict_all(self, node: Node, outage: int) -> None:
        if not node.up and node.outages == outage:
            for pod in self._pods_on(node.name):
                self.evict(pod["metadata"]["name"], "DeletionByTaintManager")

    def _notice(self, kind: str, change: str, pod: Manifest) -> None:
        """What the kubelets see of a pod."""
        if kind != "Pod":
            return
        uid, node = pod["metadata"]["uid"], self.nodes.get(pod["spec"].get("nodeName", ""))
        if change == "DELETED":
            self._started.pop(uid, None)
            agent = self.agents.pop(uid, None)
            if agent is not None and not agent.ended:
                if node is None or node.up:
                    self._loop.call_later(REMOVE_SECONDS, agent.end, 137)
                else:
                    self.agents[uid] = agent  # it goes on where no kubelet is told
            return
        if node is None or not node.up:
            return
        if pod["metadata"].get("deletionTimestamp"):
            self._stop(pod)
        elif pod["status"].get("phase") == "Pending" and uid not in self._started:
            self._started[uid] = None
            seconds = START_SECONDS * self.dice.expovariate(1.0) + node.slow_seconds
            self._loop.call_later(seconds, self._start, pod["metadata"]["name"], uid, node)

    def _start(self, name: str, uid: str, node: Node) -> None:
        pod = self.server.find("Pod", name)
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        if not node.up or node.name not in self.nodes:
            self._started.pop(uid, None)
            return
        if pod["metadata"].get("deletionTimestamp"):
            return
        self._addresses += 1
        address = (
            f"10.{self._addresses >> 16 & 255}.{self._addresses >> 8 & 255}.{self._addresses & 255}"
        )
        containers = [{"name": CONTAINER, "state": {"running": {}}}]
        self.server.set_pod_status(
            NAMESPACE, name, {"phase": "Running", "podIP": address, "containerStatuses": containers}
        )
        self._loop.call_later(IMPORT_SECONDS, self._begin_agent, name, uid, node)

    def _begin_agent(self, name: str, uid: str, node: Node) -> None:
        pod = self.server.find("Pod", name)
        if (
            pod is None
            or pod["metadata"]["uid"] != uid
            or pod["status"].get("phase") in ENDED
            or not node.up
        ):
            if (
                pod is not None
                and pod["metadata"]["uid"] == uid
                and pod["status"].get("phase") == "Running"
            ):
                self._report_end(pod, 255, "Unknown")
            return
        owner, labels = pod["metadata"]["ownerReferences"][0], pod["metadata"]["labels"]
        identity = PodIdentity(NAMESPACE, name, uid)
        self.agents[uid] = self.begin(
            identity, labels[names.LABEL_JOB_NAME], owner["uid"], node.name
        )
        if (labels[names.LABEL_JOB_NAME], labels[names.LABEL_WORKER_INDEX]) in self.filling:
            self._loop.call_later(1.0, self.evict_for_disk, pod)
        if pod["metadata"].get("deletionTimestamp"):
            self._stop(pod)

    def _stop(self, pod: Manifest) -> None:
        agent = self.agents.get(pod["metadata"]["uid"])
        if agent is None or agent.ended:
            self._loop.call_later(
                REMOVE_SECONDS, self._remove, pod["metadata"]["name"], pod["metadata"]["uid"]
            )
        else:
            agent.terminate(float(pod["spec"].get("terminationGracePeriodSeconds", 30)))

    def evict_for_disk(self, pod: Manifest) -> None:
        """The kubelet ends a pod that has filled its disk, and says so first."""
        agent = self.agents.get(pod["metadata"]["uid"])
        if agent is not None and not agent.ended and agent.reachable:
            self._report_end(
                pod,
                137,
                "Error",
                {"reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds"},
            )
            agent.end(137)
            there = self.server.find("Pod", pod["metadata"]["name"])
            if there is not None and there["metadata"].get("deletionTimestamp"):
                self._stop(there)  # nothing else removes it, as the agent has ended

    def _report_end(
        self, pod: Manifest, code: int, reason: str, why: Manifest | None = None
    ) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        there = self.server.find("Pod", name)
        if (
            there is None
            or there["metadata"]["uid"] != uid
            or there["status"].get("phase") in ENDED
        ):
            return
        ended = {"name": CONTAINER, "state": {"terminated": {"exitCode": code, "reason": reason}}}
        status: dict[str, Any] = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [ended],
            **(why or {}),
        }
        self.server.set_pod_status(NAMESPACE, name, status)

    def _remove(self, name: str, uid: str) -> None:
        pod, node = self.server.find("Pod", name), None
        if pod is not None and pod["metadata"]["uid"] == uid:
            node = self.nodes.get(pod["spec"].get("nodeName", ""))
            if node is None or node.up:
                self.server.finish_deletion(NAMESPACE, name)
