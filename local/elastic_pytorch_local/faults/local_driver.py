"""Local mode as a driver: each pod is a process group of this machine."""

import asyncio
import os
import signal
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.cluster.interface import ClusterError

from elastic_pytorch_local.faults.driver import Change, Driver, DriverError
from elastic_pytorch_local.local_operator import LocalOperator, local_operator
from elastic_pytorch_local.manifests.config_objects import Config
from elastic_pytorch_local.page import MemoryReader
from elastic_pytorch_local.pods.kubelet import NO_CONFIG

NAMESPACE = "default"
LOOK_SECONDS = 0.05
LAST_LINES = 20  # of each pod's log, if the job fails
MAX_LINES, MAX_PODS = 10_000, 32  # whose logs are kept
WriteLine = Callable[[str, str], None]


def no_line(pod: str, line: str) -> None:
    """Ignores what a pod prints."""


class PodLogs(dict[str, deque[str]]):
    """The last lines of the newest pods, with their times."""

    def __init__(self, show: WriteLine) -> None:
        super().__init__()
        self.written: Counter[str] = Counter()  # lines in all, by pod
        self.show = show

    def write(self, pod: str, line: str) -> None:
        self.setdefault(pod, deque(maxlen=MAX_LINES)).append(
            f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ} {line}"
        )
        self.written[pod] += 1
        if len(self) > MAX_PODS:
            self.pop(next(iter(self)))
        self.show(pod, line)


@contextmanager
def _driver_errors() -> Iterator[None]:
    """Turns an error of the cluster in memory, or of a missing pod, into a driver's."""
    try:
        yield
    except (ClusterError, KeyError) as error:
        raise DriverError(str(error)) from error


class LocalDriver(Driver):
    def __init__(self, operator: LocalOperator, logs: PodLogs, namespace: str = NAMESPACE) -> None:
        self._operator, self._logs, self.namespace = operator, logs, namespace

    @classmethod
    @asynccontextmanager
    async def started(
        cls,
        workdir: Path,
        paths: Mapping[str, Path],
        *,
        namespace: str = NAMESPACE,
        config: Config = NO_CONFIG,
        show: WriteLine = no_line,
    ) -> AsyncIterator["LocalDriver"]:
        logs = PodLogs(show)
        running = local_operator(workdir, paths, write_line=logs.write, config=config)
        async with running as operator:
            yield cls(operator, logs, namespace)

    async def create_job(self, manifest: Mapping[str, Any]) -> None:
        self._operator.cluster.apply_job(manifest)

    async def delete_job(self, name: str) -> None:
        with suppress(ClusterError):
            self._operator.cluster.remove_job(name, self.namespace)
        # A cluster in memory has no event for it.
        while self._operator.cluster.pods(self.namespace):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)

    async def scale_job(self, name: str, replicas: int) -> None:
        with _driver_errors():
            self._operator.cluster.scale_job(name, replicas, self.namespace)

    async def delete_pod(self, name: str, *, force: bool) -> None:
        self._operator.cluster.begin_deletion(self.namespace, name)
        if force:
            await self.kill_pod({"metadata": {"name": name}})

    async def kill_pod(self, pod: Mapping[str, Any]) -> None:
        with _driver_errors():
            os.killpg(self._operator.kubelet.process_id(pod["metadata"]["name"]), signal.SIGKILL)

    async def kill_process(self, pod: Mapping[str, Any], pid: int) -> float:
        if pid <= 1:
            raise DriverError(f"{pid} is no process of {pod['metadata']['name']}")
        os.kill(pid, signal.SIGKILL)
        return time.time()

    def watch_jobs(self, name: str) -> AsyncIterator[Change]:
        return self._watch(names.KIND)

    def watch_pods(self, job: str) -> AsyncIterator[Change]:
        return self._watch("Pod")

    async def _watch(self, wanted: str) -> AsyncIterator[Change]:
        changes: asyncio.Queue[Change] = asyncio.Queue()

        def take(kind: str, change: str, found: Any) -> None:
            if kind == wanted:
                changes.put_nowait((change, found))

        self._operator.cluster.watch(take)
        self._operator.cluster.show_all(take)
        while True:
            yield await changes.get()

    async def log_lines(self, pod: str) -> AsyncIterator[str]:
        read = 0
        while self._operator.cluster.has_pod(self.namespace, pod):
            new = min(self._logs.written[pod] - read, MAX_LINES)
            read = self._logs.written[pod]
            for line in list(self._logs.get(pod, ()))[-new:] if new else ():
                yield line
            await asyncio.sleep(LOOK_SECONDS)

    def reader(self) -> MemoryReader:
        return MemoryReader(self._operator.cluster, self._logs)

    def pods_have_ended(self) -> bool:
        phases = [pod["status"].get("phase") for pod in self._operator.cluster.pods(self.namespace)]
        return all(phase in ("Succeeded", "Failed") for phase in phases)

    def last_words(self) -> str:
        return "\n".join(
            f"{pod} | {line}"
            for pod, log in sorted(self._logs.items())
            for line in list(log)[-LAST_LINES:]
        )
