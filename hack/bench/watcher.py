"""Keeps what the cluster says about the job at hand: its status, its pods, and what workers and operator print."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

import aiohttp
from api import JOB_API, JOBS, Api
from records import Init, Record, Started, Step, read_operator_line, read_worker_line

T = TypeVar("T")
RETRY_SECONDS = 0.5
OPERATOR_NAMESPACE = "elastic-pytorch-system"
OPERATOR_SELECTOR = "app.kubernetes.io/name=elastic-pytorch-operator"
LEADER_LABEL = "elasticpytorch.dev/leader"
Pods = dict[str, dict[str, Any]]


class Waited(Exception):
    """Something did not come; says what."""


class Watcher:
    """The job as it is now, and what was recorded of it since the bench began.

    Attributes:
        job: the job as the API server has it; empty: there is none.
        pods: the job's pods by name.
        operators: the operator's pods by name.
        records: what the logs said, in the order of arrival.
    """

    def __init__(self, api: Api, namespace: str, job: str) -> None:
        self.job: dict[str, Any] = {}
        self.pods: Pods = {}
        self.operators: Pods = {}
        self.records: list[Record] = []
        self._known: set[Record] = set()
        self._api, self._namespace, self._name = api, namespace, job
        self._change = asyncio.Event()
        self._followed: set[str] = set()

    @property
    def status(self) -> dict[str, Any]:
        """The job's status."""
        return dict(self.job.get("status") or {})

    def members(self) -> list[str]:
        """The pods of the current round, in rank order."""
        ranked = [worker for worker in self.status.get("workers", ()) if "rank" in worker]
        return [worker["name"] for worker in sorted(ranked, key=lambda worker: worker["rank"])]

    def node_of(self, pod: str) -> str:
        """The node that a pod of the job runs on."""
        return str(self.pods[pod]["spec"].get("nodeName", ""))

    def leading_operators(self) -> Pods:
        """The pod of the operator that leads, by its name; none while none does."""
        return {name: pod for name, pod in self.operators.items() if pod["metadata"].get("labels", {}).get(LEADER_LABEL)}

    def container_of(self, pod: str) -> str:
        """The id of a pod's container, as the node's containerd knows it."""
        [status] = self.pods[pod]["status"]["containerStatuses"]
        return str(status["containerID"]).partition("://")[2]

    def pids_of(self, pod: str) -> tuple[int, ...]:
        """The process ids of a pod's newest workers, as the pod sees them."""
        started = (r.pids for r in reversed(self.records) if isinstance(r, Started) and r.pod == pod)
        return next(started, ())

    def last_step(self) -> Step | None:
        """The newest step that is known of."""
        return max((r for r in self.records if isinstance(r, Step)), key=lambda step: step.at, default=None)

    def steps_since(self, moment: float, world: int) -> int:
        """How many steps the newest group has taken after a moment; 0 if it is not of that size."""
        inits = [r.at for r in self.records if isinstance(r, Init) and r.rank == 0]
        begin = max([moment, *inits[-1:]])
        steps = [r for r in self.records if isinstance(r, Step) and r.at > begin]
        return len(steps) if all(step.world == world for step in steps) else 0

    async def run(self) -> None:
        """Watch and follow, until cancelled."""
        pods = f"/api/v1/namespaces/{self._namespace}/pods"
        operators = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods"
        key = f"{self._namespace}/{self._name}"
        async with asyncio.TaskGroup() as group:

            def follow(namespace: str, read: Callable[[str, str], Record | None], pod: dict[str, Any]) -> None:
                name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
                if uid not in self._followed and _runs(pod):
                    self._followed.add(uid)
                    group.create_task(self._follow(namespace, name, uid, read))

            def see_pod(pod: dict[str, Any]) -> None:
                follow(self._namespace, read_worker_line, pod)

            def see_operator(pod: dict[str, Any]) -> None:
                follow(OPERATOR_NAMESPACE, lambda _, line: read_operator_line(key, line), pod)

            group.create_task(self._watch(pods, "elasticpytorch.dev/role=worker", self.pods, see_pod))
            group.create_task(self._watch(operators, OPERATOR_SELECTOR, self.operators, see_operator))
            jobs: Pods = {}

            def see_job(job: dict[str, Any]) -> None:
                self.job = jobs.get(self._name, {}) and job

            group.create_task(self._watch(f"{JOB_API}/namespaces/{self._namespace}/{JOBS}", "", jobs, see_job))

    async def until(self, found: Callable[[], T | None], *, seconds: float, what: str) -> T:
        """Wait for something to be found.

        Raises:
            Waited: it took too long.
        """
        end = time.monotonic() + seconds
        while True:
            change = self._change
            if (it := found()) is not None:
                return it
            left = end - time.monotonic()
            if left <= 0:
                raise Waited(f"waited {seconds:.0f} s for {what}")
            try:
                async with asyncio.timeout(min(left, 1.0)):
                    await change.wait()
            except TimeoutError:
                continue

    async def _watch(self, path: str, selector: str, kept: Pods, see: Callable[[dict[str, Any]], None]) -> None:
        while True:
            try:
                kept.clear()
                async for type_, found in self._api.watch(path, selector):
                    if type_ == "ERROR":
                        break
                    name = found["metadata"]["name"]
                    if type_ == "DELETED":
                        kept.pop(name, None)
                    else:
                        kept[name] = found
                    see(found)
                    self._changed()
            except (aiohttp.ClientError, TimeoutError, ValueError):
                pass
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self, namespace: str, pod: str, uid: str, read: Callable[[str, str], Record | None]) -> None:
        """Read a log; again from its beginning if it breaks off while its pod is there."""
        while True:
            try:
                async for line in self._api.lines(f"/api/v1/namespaces/{namespace}/pods/{pod}/log?follow=true"):
                    record = read(pod, line)
                    if record and record not in self._known:
                        self._known.add(record)
                        self.records.append(record)
                        self._changed()
            except (aiohttp.ClientError, TimeoutError, ValueError):
                pass
            await asyncio.sleep(RETRY_SECONDS)
            kept = (self.pods if namespace == self._namespace else self.operators).get(pod)
            if kept is None or kept["metadata"]["uid"] != uid:
                return

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


def _runs(pod: dict[str, Any]) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return any("running" in status.get("state", {}) for status in statuses)
