"""Records a real training without a cluster for the picture of the README: a worker is killed and replaced, then the job grows.

    PYTHONPATH=hack:operator:worker_image:plugin:local .venv/bin/python hack/record_run.py

It writes tests/plugin/page/recorded_run.json: the job as it is at the end, the time, and what there is around it. `PICTURES=1 make
test-browser` draws docs/use/page/training.png from that.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo.__main__ import EXAMPLE_PATHS, local_manifest
from demo.acts import OPERATOR_SECONDS, Play
from elastic_pytorch_local.faults.local_driver import LocalDriver
from elastic_pytorch_local.faults.watcher import Watcher, background
from elastic_pytorch_local.page import MemoryReader
from elastic_pytorch_operator.api import names
from measure.kind_cluster import ROOT

FILE = ROOT / "tests" / "plugin" / "page" / "recorded_run.json"
STEPS = 1500
LOG_LINES = 60
ROOT_SHOWN = "/project"


def _small_pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {name: pod["metadata"].get(name) for name in ("name", "namespace", "uid", "labels", "creationTimestamp")}
    spec = {"nodeName": pod["spec"].get("nodeName"), "containers": [{"name": c["name"]} for c in pod["spec"]["containers"]]}
    return {"metadata": metadata, "spec": spec, "status": pod["status"]}


async def record() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="elastic-pytorch-") as workdir:
        async with LocalDriver.started(Path(workdir), EXAMPLE_PATHS) as cluster:
            manifest, reader = local_manifest(STEPS), cluster.reader()
            name = manifest["metadata"]["name"]
            watcher = Watcher(cluster, name)
            await cluster.create_job(manifest)
            async with background(watcher.run()):
                await watcher.until(lambda: watcher.job.workers, seconds=OPERATOR_SECONDS, what="workers")
                await Play(cluster, watcher, print).lose_and_grow(manifest["spec"]["replicas"])
            job = reader.get_job(cluster.namespace, name)
            return {"at": round(time.time(), 2), "job": job, **_surroundings(reader, cluster.namespace, name)}


def _surroundings(reader: MemoryReader, namespace: str, name: str) -> dict[str, Any]:
    pods = reader.list_pods(namespace, name)
    logs = {pod["metadata"]["name"]: pod["metadata"]["namespace"] for pod in pods}
    return {
        "pods": [_small_pod(pod) for pod in pods],
        "events": reader.list_events(namespace, names.KIND, name),
        "nodes": reader.list_nodes(),
        "logs": {pod: list(reader.pod_log(place, pod, tail_lines=LOG_LINES)) for pod, place in logs.items()},
    }


def main() -> int:
    text = json.dumps(asyncio.run(record()), separators=(",", ":"), sort_keys=True)
    FILE.write_text(text.replace(str(ROOT), ROOT_SHOWN) + "\n")
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
