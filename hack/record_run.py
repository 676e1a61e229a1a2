"""Records a real training without a cluster for the README's picture: a loss, then a growth.

    PYTHONPATH=hack:operator:worker_image:plugin:local .venv/bin/python hack/record_run.py

It writes tests/plugin/page/recorded_run.json: the job at the end, the time, and its surroundings.
`PICTURES=1 make test-browser` draws docs/use/page/training.png from that.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elastic_pytorch_local.faults.acts import Acts
from elastic_pytorch_local.faults.local_driver import LocalDriver
from elastic_pytorch_local.faults.watcher import Watcher, background
from elastic_pytorch_operator.api import names
from measure.kind_cluster import ROOT, example

FILE = ROOT / "tests" / "plugin" / "page" / "recorded_run.json"
EXAMPLE = ROOT / "examples" / "char-lm" / "job-elastic.yaml"
NAME, STEPS = "char-lm", 1500
LOG_LINES = 60
ROOT_SHOWN = "/project"


def _small_pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("name", "namespace", "uid", "labels", "creationTimestamp")
    containers = [{"name": container["name"]} for container in pod["spec"]["containers"]]
    return {
        "metadata": {name: pod["metadata"].get(name) for name in kept},
        "spec": {"nodeName": pod["spec"].get("nodeName"), "containers": containers},
        "status": pod["status"],
    }


async def record() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="elastic-pytorch-") as workdir:
        async with LocalDriver.started(Path(workdir), {"/examples": ROOT / "examples"}) as cluster:
            manifest, reader = example(EXAMPLE, steps=STEPS), cluster.reader()
            manifest["metadata"]["name"] = NAME
            container = manifest["spec"]["template"]["spec"]["containers"][0]
            container["args"] += ["--text", str(ROOT / "docs" / "use")]
            watcher = Watcher(cluster, NAME)
            await cluster.create_job(manifest)
            async with background(watcher.run()):
                acts = Acts(cluster, watcher, print)
                await acts.begin()
                for act in (acts.lose_a_pod, acts.grow, acts.settle):
                    await acts.settle()
                    await act()
            namespace, pods = cluster.namespace, reader.list_pods(cluster.namespace, NAME)
            return {
                "at": round(time.time(), 2),
                "job": reader.get_job(namespace, NAME),
                "pods": [_small_pod(pod) for pod in pods],
                "events": reader.list_events(namespace, names.KIND, NAME),
                "nodes": reader.list_nodes(),
                "logs": {
                    name: list(reader.pod_log(namespace, name, tail_lines=LOG_LINES))
                    for name in (pod["metadata"]["name"] for pod in pods)
                },
            }


def main() -> int:
    text = json.dumps(asyncio.run(record()), separators=(",", ":"), sort_keys=True)
    FILE.write_text(text.replace(str(ROOT), ROOT_SHOWN) + "\n")
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
