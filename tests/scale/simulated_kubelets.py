"""Simulated kubelets run the worker pods of a cluster in memory, each with a simulated agent that asks a real operator."""

import asyncio
import ipaddress
import itertools
import time
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.cluster.in_memory import FakeCluster
from scale.agent import Agent, Job, Operators, connection
from scale.training import Training

NAMESPACE = "default"
CONTAINER_SECONDS = 1.5  # from the scheduler to the container
IMPORT_SECONDS = 2.0  # from the container to the agent that is ready
STOP_SECONDS = 0.2
LEAVE_SECONDS = 2.0
LOOK_SECONDS = 0.1


class SimulatedKubelets:
    """Run the worker pods of a cluster in memory, each with its agent.

    Args:
        cluster: the cluster.

    Attributes:
        agents: those that have started, by their pod's name.
        jobs: by name: what is not set when a job's first pod starts does not end.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._operators = Operators()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._deletions: set[asyncio.Task[None]] = set()
        self._lost_nodes: set[str] = set()
        self._addresses = itertools.count(int(ipaddress.ip_address("127.1.0.1")))
        self.agents: dict[str, Agent] = {}
        self.jobs: dict[str, Job] = {}
        cluster.watch(self._on_change)

    def running(self, job: str) -> list[Agent]:
        """Returns the agents of a job's running workers that are not on a lost node, by rank."""
        found = [a for a in self.agents.values() if a.job_name == job and a.state == "running" and not a.silent]
        return sorted(found, key=lambda agent: agent.rank)

    def kill(self, pod: str, exit_code: int = 137) -> None:
        """Ends a pod's container."""
        task, agent = self._tasks.pop(pod, None), self.agents.pop(pod, None)
        if agent is not None:
            agent.job.training.leave(pod, time.monotonic())
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
        self._set_status(pod, {"terminated": ended}, phase="Failed" if exit_code else "Succeeded")

    def lose_node(self, node: str) -> None:
        """Loses a node: its pods are silent, and no pod starts there."""
        self._lost_nodes.add(node)
        for agent in self.agents.values():
            if agent.node == node:
                agent.silent = True
                agent.job.training.leave(agent.name, time.monotonic())

    async def close(self) -> None:
        """Ends all pods."""
        tasks = [*self._tasks.values(), *self._deletions]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_change(self, kind: str, change: str, pod: dict[str, Any]) -> None:
        if kind != "Pod" or not _job(pod):
            return
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        if change == "DELETED":
            self.agents.pop(name, None)
            if (task := self._tasks.pop(name, None)) is not None:
                task.cancel()
        elif not node or node in self._lost_nodes:
            return
        elif pod["metadata"].get("deletionTimestamp"):
            deletion = asyncio.ensure_future(self._delete(name))
            self._deletions.add(deletion)
            deletion.add_done_callback(self._deletions.discard)
        elif name not in self._tasks and pod["status"].get("phase") == "Pending":
            self._tasks[name] = asyncio.ensure_future(self._run(pod))

    async def _run(self, pod: dict[str, Any]) -> None:
        name, node, job = pod["metadata"]["name"], pod["spec"]["nodeName"], _job(pod)
        await asyncio.sleep(CONTAINER_SECONDS)
        address = ipaddress.ip_address(next(self._addresses))
        self._set_status(name, {"running": {}}, phase="Running", podIP=str(address))
        await asyncio.sleep(IMPORT_SECONDS)
        token = self._cluster.issue_token(NAMESPACE, name)

        async def find_token() -> str:
            return token

        shared, link = self.jobs.setdefault(job, Job(Training())), connection(self._operators.of(pod), str(address))
        self.agents[name] = Agent(name, job, shared, link, find_token, self.kill, node=node)
        await self.agents[name].run()

    async def _delete(self, name: str) -> None:
        if (agent := self.agents.get(name)) is not None:
            number = agent.round
            agent.report("leaving")
            until = time.monotonic() + LEAVE_SECONDS
            while agent.round == number and time.monotonic() < until:
                await asyncio.sleep(LOOK_SECONDS)
        await asyncio.sleep(STOP_SECONDS)
        self._cluster.finish_deletion(NAMESPACE, name)

    def _set_status(self, name: str, state: dict[str, Any], **status: str) -> None:
        containers = [{"name": names.TRAINING_CONTAINER, "state": state}]
        self._cluster.set_pod_status(NAMESPACE, name, {**status, "containerStatuses": containers})


def _job(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.LABEL_JOB_NAME, ""))
