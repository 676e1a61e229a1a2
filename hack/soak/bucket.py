"""The bucket of the job that has no folder: a server in a pod that no fault of the plan ends, as its objects are in its memory."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

from measure.api import pods_path
from measure.cluster import is_ready
from measure.kind_cluster import CONTROL_PLANE, ROOT
from measure.object_storage import BUCKET, PORT, server
from measure.recorded_job import Told

from soak.stage import Stage
from soak.timeline import Stored, read_stored

# Of the run's folder: what scripts/object_server.py has stored, and could read.
NOTES_FILE = "bucket.objects"
START_SECONDS = 120.0
BUILD = ROOT / "hack" / "images" / "object-storage.sh"


def url_of(job: str) -> str:
    return f"s3://{BUCKET}/{job}"


def manifests(job: str, folder: str, node: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The server's pod and its Service.

    Args:
        folder: below /shared, where it finds its faults and leaves its notes.
        node: the control plane's, which no fault ends.
    """
    pod, service = server(
        ("python3", "/scripts/object_server.py", "/notes", str(PORT), url_of(job))
    )
    spec = pod["spec"]
    spec |= {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
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
    """Builds the image if need be, starts the server, and returns when it serves.

    Raises:
        TimeoutError: it does not begin to.
        subprocess.CalledProcessError: there is no image.
    """
    await asyncio.to_thread(subprocess.run, [BUILD], check=True)
    pod, service = manifests(job, stage.driver.namespace, CONTROL_PLANE)
    await stage.driver.api.ask(
        "POST", f"/api/v1/namespaces/{stage.driver.namespace}/services", service
    )
    await stage.driver.api.ask("POST", pods_path(stage.driver.namespace), pod)
    path = pods_path(stage.driver.namespace, pod["metadata"]["name"])
    async with asyncio.timeout(START_SECONDS):
        while True:
            if is_ready(await stage.driver.api.ask("GET", path)):
                return
            await asyncio.sleep(1)


def read_notes(folder: Path) -> list[Stored]:
    return read_stored(Told(folder / NOTES_FILE).new())
