"""Local mode: one job on this machine, with the operator's own planner and the agents, and no cluster."""

import asyncio
import importlib.util
import logging
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from elastic_pytorch_operator.agents.http_api import AgentApi, listening
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.token_review import TokenReviewer
from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.conditions import find_condition, has_ended, is_true
from elastic_pytorch_operator.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.local.kubelet import LocalKubelet
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.reconcile.controller import Controller
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import JobKey, parse_job

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2
STOP_SECONDS = 60.0


@dataclass(slots=True)
class LocalOperator:
    """A running operator of an in-memory cluster whose pods are processes."""

    cluster: FakeCluster
    kubelet: LocalKubelet
    cache: Cache
    registry: AgentRegistry
    controller: Controller


@asynccontextmanager
async def local_operator(
    workdir: Path, paths: Mapping[str, Path], pythonpath: str = "", **kubelet: Any
) -> AsyncIterator[LocalOperator]:
    """Runs an operator on a cluster in memory for as long as the context lasts.

    Args:
        workdir: where tokens and volumes go.
        paths: container paths that stand for folders of this machine.
        pythonpath: where the agent's package is, if it is not installed.
        kubelet: further arguments of LocalKubelet.
    """
    cluster, cache, registry = FakeCluster(), Cache(), AgentRegistry()
    queue: WorkQueue[JobKey] = WorkQueue()
    api = AgentApi(cache, registry, TokenReviewer(cluster), queue.add)
    async with listening(api, "127.0.0.1", 0) as port:
        controller = Controller(cluster, cache, registry, queue, AgentSettings(f"http://127.0.0.1:{port}"))
        runner = LocalKubelet(cluster, workdir, paths, pythonpath, **kubelet)
        cluster.watch(lambda kind, change, found: queue.add_all(cache.observe_change(kind, change, found, time.monotonic())))
        await controller.prime()
        working = asyncio.create_task(controller.run())
        try:
            yield LocalOperator(cluster, runner, cache, registry, controller)
        finally:
            working.cancel()
            await runner.close()
            await asyncio.gather(working, return_exceptions=True)


async def run_local(path: Path, workdir: Path | None = None) -> int:
    """Runs a job's manifest to its end; returns the process's exit code."""
    try:
        manifest = read_manifest(path)
        # There is no queue on this machine.
        (manifest["metadata"].get("labels") or {}).pop(kueue.LABEL_QUEUE, None)
        key = parse_job(manifest).key
    except (OSError, yaml.YAMLError, InvalidJob) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 2
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    paths = {"/examples": path.parent.parent}  # where the worker image has them
    with tempfile.TemporaryDirectory(prefix="elastic-pytorch-") as temporary:
        place = workdir or Path(temporary)
        async with local_operator(place, paths, find_agent()) as operator:
            operator.cluster.apply_job(manifest)
            status = await _follow(operator.cluster, key, interrupted)
            if not has_ended(status):
                print(f"stopping {key.name}", file=sys.stderr)
                operator.cluster.remove_job(key.name, key.namespace)
            await _wait_for_pods(operator.cluster, key)
    if is_true(status, names.COMPLETE):
        return 0
    if not is_true(status, names.FAILED):
        return 130
    failed = find_condition(status, names.FAILED) or {}
    print(f"{key.name} has failed, {failed['reason']}: {failed['message']}", file=sys.stderr)
    return 1


def read_manifest(path: Path) -> dict[str, Any]:
    """The ElasticPyTorchJob in a file.

    Raises:
        InvalidJob: there is none.
        OSError: the file cannot be read.
        yaml.YAMLError: it is not YAML.
    """
    for document in yaml.safe_load_all(path.read_text()):
        if isinstance(document, dict) and document.get("kind") == names.KIND:
            document.setdefault("metadata", {}).setdefault("namespace", "default")
            if not document["metadata"].get("name"):
                raise InvalidJob("metadata.name", "is missing")
            return document
    raise InvalidJob("kind", f"the file holds no {names.KIND}")


def find_agent() -> str:
    """What to put on PYTHONPATH so that the agent's package is found: nothing if it is installed, else where a checkout has it."""
    if importlib.util.find_spec("elastic_pytorch") is not None:
        return ""
    checkout = Path(__file__).resolve().parents[3] / "worker_image"
    if not (checkout / "elastic_pytorch").is_dir():
        raise RuntimeError("the package elastic_pytorch, which holds the agent, is not installed: pip install ./worker_image")
    return str(checkout)


def describe_progress(status: Mapping[str, Any]) -> str:
    """Returns the line that the log has for a job's status."""
    return f"{status.get('state', 'Pending')}: round {status.get('round', 0)}, {status.get('readyReplicas', 0)} workers ready"


async def _follow(cluster: FakeCluster, key: JobKey, interrupted: asyncio.Event) -> Mapping[str, Any]:
    """Logs a job's changes until it ends or the user has had enough; returns its last status."""
    said = ""
    while True:
        status: dict[str, Any] = cluster.job(key.name, key.namespace)["status"]
        text = describe_progress(status)
        if text != said:
            logger.info(text, extra={"world_size": status.get("worldSize", 0)})
            said = text
        if has_ended(status) or interrupted.is_set():
            return status
        await asyncio.sleep(POLL_SECONDS)


async def _wait_for_pods(cluster: FakeCluster, key: JobKey) -> None:
    until = time.monotonic() + STOP_SECONDS
    while time.monotonic() < until:
        if all(pod["status"].get("phase") in ("Succeeded", "Failed") for pod in cluster.pods(key.namespace)):
            return
        await asyncio.sleep(POLL_SECONDS)
