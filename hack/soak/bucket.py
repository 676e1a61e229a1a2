"""The bucket of a job: a server in a pod that no fault ends, because its memory is the store."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

from measure.api import pods_path
from measure.cluster import is_ready
from measure.kind_cluster import CONTROL_PLANE, ROOT
from measure.object_storage import PORT, keep_in_bucket, server
from measure.recorded_job import Told

from soak.jobs import url_of
from soak.stage import Stage
from soak.timeline import Stored

# What scripts/object_server.py has stored and could read, in the run's folder.
NOTES_FILE = "bucket.objects"
START_SECONDS = 120.0
BUILD = ROOT / "hack" / "images" / "object-storage.sh"


def manifests(job: str, folder: str) -> tuple[dict[str, Any], dict[str, Any]]:
    command = ("python3", "/scripts/object_server.py", "/notes", str(PORT), url_of(job))
    pod, service = server(command)
    spec = pod["spec"]
    keep_in_bucket(spec)  # it also reads what it stores
    spec |= {"nodeName": CONTROL_PLANE, "tolerations": [{"operator": "Exists"}]}
    spec["volumes"] = [
        {"name": "notes", "hostPath": {"path": f"/shared/{folder}"}},
        {"name": "scripts", "configMap": {"name": "scripts"}},
    ]
    spec["containers"][0]["volumeMounts"] = [
        {"name": "notes", "mountPath": "/notes"},
        {"name": "scripts", "mountPath": "/scripts"},
    ]
    return pod, service


async def start_server(stage: Stage, job: str) -> None:
    await asyncio.to_thread(subprocess.run, [BUILD], check=True)
    namespace, ask = stage.driver.namespace, stage.driver.api.ask
    pod, service = manifests(job, namespace)
    await ask("POST", f"/api/v1/namespaces/{namespace}/services", service)
    await ask("POST", pods_path(namespace), pod)
    path = pods_path(namespace, pod["metadata"]["name"])
    async with asyncio.timeout(START_SECONDS):
        while not is_ready(await ask("GET", path)):  # noqa: ASYNC110
            await asyncio.sleep(1)


def read_notes(folder: Path) -> list[Stored]:
    return [
        Stored(line["at"], line["version"] and tuple(line["version"]), line["what"] == "read")
        for line in Told(folder / NOTES_FILE).new()
    ]
