"""One job on this machine, from its manifest to its end."""

import asyncio
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.conditions import find_condition, has_ended, is_true
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import JobKey

from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_local.local_operator import find_agent, local_operator
from elastic_pytorch_local.manifests.admission import admit
from elastic_pytorch_local.manifests.config_objects import CONFIG_MAP, config_of_path, read_config
from elastic_pytorch_local.manifests.documents import read_documents
from elastic_pytorch_local.manifests.limits import check_references, fields_not_applied, find_obstacles

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2
STOP_SECONDS = 60.0


async def run_local(
    files: Sequence[Path], workdir: Path | None = None, *, config_maps: Iterable[tuple[str, Path]] = (), leave_out: bool = False
) -> int:
    """Runs a job to its end; returns the process's exit code.

    Volumes go to the workdir, or to a temporary folder. `leave_out` runs it without what this
    machine cannot do.
    """
    try:
        documents = read_documents(files)
        manifest = documents.job
        key = admit(manifest).key
        config = read_config(documents.config, key.namespace)
        config |= {(CONFIG_MAP, name): config_of_path(path) for name, path in config_maps}
        check_references(manifest, config)
    except (OSError, yaml.YAMLError, InvalidJob) as error:
        print(f"{files[0]}: {error}", file=sys.stderr)
        return 2
    obstacles = find_obstacles(manifest)
    if obstacles and not leave_out:
        print(*(f"{files[0]}: {obstacle}" for obstacle in obstacles), sep="\n", file=sys.stderr)
        return 2
    unused = [*(obstacle.path for obstacle in obstacles), *fields_not_applied(manifest), *documents.others]
    if unused:
        print(f"not applied on one machine: {', '.join(unused)}", file=sys.stderr)
    (manifest["metadata"].get("labels") or {}).pop(kueue.LABEL_QUEUE, None)  # there is no queue on this machine
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    paths = {"/examples": files[0].parent.parent}  # where the worker image has them
    with tempfile.TemporaryDirectory(prefix="elastic-pytorch-") as temporary:
        place = workdir or Path(temporary)
        async with local_operator(place, paths, find_agent(), config=config) as operator:
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
    failed = find_condition(status, names.FAILED)
    print(f"{key.name} has failed, {failed['reason']}: {failed['message']}", file=sys.stderr)
    return 1


def describe_progress(status: Mapping[str, Any]) -> str:
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
