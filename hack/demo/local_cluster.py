"""A cluster for the demo where there is none: the operator's local mode, in which each pod is a process of this machine.

It takes the commands of kubectl that the demo gives, and tells what the API server would tell of the job.
"""

import asyncio
import json
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_local.cluster.object_store import Watcher
from elastic_pytorch_local.local_operator import LocalOperator, find_agent, local_operator
from elastic_pytorch_local.page import MemoryReader, serve_page
from elastic_pytorch_operator.cluster.interface import ClusterError
from measure.api import Api
from measure.commands import CommandFailed, Commands
from measure.kind_cluster import ROOT

NAMESPACE = "default"
LOOK_SECONDS = 0.05
DELETION_SECONDS = 600.0
KEPT_LINES = 20  # of each pod's log, for a demo that fails

Change = tuple[str, dict[str, Any]]


class LocalCluster(Commands, Api):
    """The cluster of a running local operator."""

    namespace = NAMESPACE

    def __init__(self, operator: LocalOperator, logs: Mapping[str, list[str]]) -> None:
        self._operator, self._logs = operator, logs

    @classmethod
    @asynccontextmanager
    async def started(cls, workdir: Path) -> AsyncIterator["LocalCluster"]:
        """A cluster whose volumes lie in a folder; its processes end with the context."""
        logs: defaultdict[str, list[str]] = defaultdict(list)

        def write(pod: str, line: str) -> None:
            logs[pod].append(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ} {line}")

        async with local_operator(workdir, {"/examples": ROOT / "examples"}, find_agent(), write_line=write) as operator:
            yield cls(operator, logs)

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Does what one of the demo's commands asks for."""
        match arguments:
            case ("apply", "-f", "-"):
                self._operator.cluster.apply_job(json.loads(stdin))
            case ("scale", job, replicas):
                self._operator.cluster.scale_job(_name(job), int(replicas.removeprefix("--replicas=")))
            case ("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false"):
                self._operator.cluster.begin_deletion(NAMESPACE, pod)
                os.killpg(self._operator.kubelet.process_id(pod), signal.SIGKILL)
            case ("delete", job, "--ignore-not-found", *_):
                with suppress(ClusterError):
                    self._operator.cluster.remove_job(_name(job))
            case ("wait", "pod", *_):
                await self._pods_are_gone()
            case _:
                raise CommandFailed(f"kubectl {' '.join(arguments)}: unknown in local mode")
        return ""

    async def watch(self, path: str, selector: str) -> AsyncIterator[Change]:
        """Yields the jobs or the pods, as they are and as they change."""
        del selector  # there is one job
        wanted = names.KIND if path.endswith(f"/{names.PLURAL}") else "Pod"
        changes: asyncio.Queue[Change] = asyncio.Queue()

        def take(kind: str, change: str, found: Any) -> None:
            if kind == wanted:
                changes.put_nowait((change, found))

        self._operator.cluster.watch(take)
        while True:
            yield await changes.get()

    async def lines(self, path: str) -> AsyncIterator[str]:
        """Yields a pod's log, each line with its time, until the pod has gone."""
        pod, read = path.split("/")[-2], 0
        while any(found["metadata"]["name"] == pod for found in self._operator.cluster.pods(NAMESPACE)):
            for line in self._logs.get(pod, [])[read:]:
                read += 1
                yield line
            await asyncio.sleep(LOOK_SECONDS)

    def page(self) -> AbstractContextManager[str]:
        """Serves the page of `kubectl epj ui` for as long as the context lasts, which yields its address."""
        return serve_page(self.reader())

    def reader(self) -> MemoryReader:
        """What reads its objects."""
        return MemoryReader(self._operator.cluster, self._logs)

    def observe(self, watcher: Watcher) -> None:
        """Calls a callable with each change of an object."""
        self._operator.cluster.watch(watcher)

    def last_words(self) -> str:
        """The last lines of each pod's log."""
        return "\n".join(f"{pod} | {line}" for pod, log in sorted(self._logs.items()) for line in log[-KEPT_LINES:])

    async def _pods_are_gone(self) -> None:
        async with asyncio.timeout(DELETION_SECONDS):
            while self._operator.cluster.pods(NAMESPACE):  # noqa: ASYNC110  a cluster in memory has no event for it
                await asyncio.sleep(LOOK_SECONDS)


def _name(job: str) -> str:
    return job.partition("/")[2]
