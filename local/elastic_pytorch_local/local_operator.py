"""The operator's own planner on a cluster in memory, whose pods are processes of this machine."""

import asyncio
import importlib.util
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_pytorch_operator.agents.http_api import AgentApi, listening
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.token_review import TokenReviewer
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.reconcile.controller import Controller
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.spec.job import JobKey

from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_local.pods.kubelet import LocalKubelet


@dataclass(slots=True)
class LocalOperator:
    cluster: FakeCluster
    kubelet: LocalKubelet


@asynccontextmanager
async def local_operator(
    workdir: Path, paths: Mapping[str, Path], **kubelet: Any
) -> AsyncIterator[LocalOperator]:
    cluster, cache, registry = FakeCluster(), Cache(), AgentRegistry()
    queue: WorkQueue[JobKey] = WorkQueue()
    api = AgentApi(cache, registry, TokenReviewer(cluster), queue.add)
    async with listening(api, "127.0.0.1", 0) as port:
        settings = AgentSettings(f"http://127.0.0.1:{port}")
        controller = Controller(cluster, cache, registry, queue, settings)
        runner = LocalKubelet(cluster, workdir, paths, find_agent(), **kubelet)

        def observe(kind: str, change: str, found: Any) -> None:
            queue.add_all(cache.observe_change(kind, change, found, time.monotonic()))

        cluster.watch(observe)
        await controller.prime()
        working = asyncio.create_task(controller.run())
        try:
            yield LocalOperator(cluster, runner)
        finally:
            working.cancel()
            await runner.close()
            await asyncio.gather(working, return_exceptions=True)


def find_agent() -> str:
    """The PYTHONPATH of the agent's package: empty if it is installed, else the checkout's."""
    if importlib.util.find_spec("elastic_pytorch") is not None:
        return ""
    checkout = Path(__file__).resolve().parents[2] / "worker_image"
    if not (checkout / "elastic_pytorch").is_dir():
        raise RuntimeError(
            "the package elastic_pytorch, which holds the agent, is not installed: "
            "pip install ./worker_image"
        )
    return str(checkout)
