"""Keeps what the cluster says about one job: its status, its pods, and what workers and operator print."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import aiohttp
from elastic_pytorch_client import names
from elastic_pytorch_client.reading.job_view import Progress, view_job

from measure.api import Api, jobs_path, pods_path
from measure.kind_cluster import OPERATOR_NAMESPACE, OPERATORS
from measure.records import Record, Step, read_operator_line, read_worker_line
from measure.timeline import Timeline

T = TypeVar("T")
Pods = dict[str, dict[str, Any]]
Read = Callable[[str], list[Record]]
LOOK_SECONDS = 0.1
RETRY_SECONDS = 0.5
BROKEN = (aiohttp.ClientError, TimeoutError, ValueError)  # a connection, or a line of it
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases"
LEASE = "elastic-pytorch-operator"


@asynccontextmanager
async def background(*runs: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(run) for run in runs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error


class Waited(Exception):
    """Something did not come; says what."""


def holder_of(lease: dict[str, Any]) -> str:
    """Returns the operator's pod that leads by what a Lease says; empty: none does."""
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


async def leading_pod(api: Api) -> str:
    """Returns the operator's pod that leads; empty: none does."""
    return holder_of(await api.ask("GET", f"{LEASES}/{LEASE}"))


class Watcher:
    """A job as it is now, and what was recorded of it since the watching began."""

    def __init__(self, api: Api, namespace: str, job: str) -> None:
        self._api, self.namespace, self.name = api, namespace, job
        self.job = view_job({})  # while there is none
        self.deleted = False  # it was there, and is gone
        self.pods: Pods = {}  # the job's by name
        self.operators: Pods = {}  # the operator's by name
        self.holder = ""  # of the operator's Lease
        self.timeline = Timeline()
        self.broken: Exception | None = None  # why nothing is seen any more

    @property
    def progress(self) -> Progress:
        """How far the training is: by its log, or by its status, which is behind by some seconds, where that is ahead."""
        last, told = self.timeline.last(Step), self.job.progress
        return told if last is None or last.number < (told.step or 0) else Progress(last.number, last.total, last.loss)

    def node_of(self, pod: str) -> str:
        return str(self.pods[pod]["spec"].get("nodeName", ""))

    def leaders(self) -> Pods:
        """Returns the operator's pod that leads, by its name; none while none does."""
        return {name: pod for name, pod in self.operators.items() if name == self.holder}

    async def run(self, *, operators: bool = False) -> None:
        """Watches the job and its pods, with the operator's or without, and follows their logs, until cancelled."""
        workers = f"{names.LABEL_JOB_NAME}%3D{self.name},{names.LABEL_ROLE}%3D{names.ROLE_WORKER}"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._see_job())
                group.create_task(self._see_pods(group, self.namespace, workers, self.pods))
                if operators:
                    read = partial(read_operator_line, f"{self.namespace}/{self.name}")
                    group.create_task(self._see_pods(group, OPERATOR_NAMESPACE, OPERATORS, self.operators, read))
                    group.create_task(self._see_leader())
        except* Exception as errors:
            self.broken = errors.exceptions[0]

    async def until(self, found: Callable[[], T | None], *, seconds: float, what: str) -> T:
        """Returns what is found as soon as it is true; raises Waited if that takes too long, or nothing is seen any more."""
        try:
            async with asyncio.timeout(seconds):
                while not (it := found()):
                    if self.broken:
                        raise Waited(f"cannot see the job any more: {self.broken!r}")
                    await asyncio.sleep(LOOK_SECONDS)
                return it
        except TimeoutError:
            raise Waited(f"waited {seconds:.0f} s for {what}") from None

    async def _see_job(self) -> None:
        while True:
            with suppress(*BROKEN):
                name = f"fieldSelector=metadata.name%3D{self.name}"
                async for change, job in self._api.watch(jobs_path(self.namespace), name):
                    self.deleted = change == "DELETED"
                    self.job = view_job({} if self.deleted else job)
            await asyncio.sleep(RETRY_SECONDS)

    async def _see_leader(self) -> None:
        while True:
            with suppress(*BROKEN):
                async for _, lease in self._api.watch(LEASES, f"fieldSelector=metadata.name%3D{LEASE}"):
                    self.holder = holder_of(lease)
            await asyncio.sleep(RETRY_SECONDS)

    async def _see_pods(
        self, group: asyncio.TaskGroup, namespace: str, selector: str, kept: Pods, read: Read | None = None
    ) -> None:
        """Keeps the pods as they are now, and follows their logs, by default as those of workers."""
        followed = set[str]()
        while True:
            kept.clear()
            with suppress(*BROKEN):
                async for change, pod in self._api.watch(pods_path(namespace), f"labelSelector={selector}"):
                    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
                    if change == "DELETED":
                        kept.pop(name, None)
                    else:
                        kept[name] = pod
                    if uid not in followed and _runs(pod):
                        followed.add(uid)
                        log = self._follow(pods_path(namespace, name), name, uid, kept, read or partial(read_worker_line, name))
                        group.create_task(log).add_done_callback(partial(lambda uid, _: followed.discard(uid), uid))
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self, path: str, pod: str, uid: str, kept: Pods, read: Read) -> None:
        """Reads a log; again from its beginning if it ends while its pod is there."""
        while pod in kept and kept[pod]["metadata"]["uid"] == uid:
            with suppress(*BROKEN):
                async for line in self._api.lines(f"{path}/log?follow=true&timestamps=true"):
                    for record in read(line):
                        self.timeline.add(record)
            await asyncio.sleep(RETRY_SECONDS)


def _runs(pod: dict[str, Any]) -> bool:
    return any("running" in state.get("state", {}) for state in pod.get("status", {}).get("containerStatuses") or ())
