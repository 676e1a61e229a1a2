"""A training without this operator, as a JobSet keeps it: a fixed size, stock torchrun, and all pods are made again when one has ended.

It is kinder than a JobSet: new pods are made at once, under other names, and do not wait until the old ones are gone.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from elastic_pytorch_local.faults.driver import BROKEN
from measure.api import Api, ApiError, pods_path

from replay.jobs import SIZE, Job, manifest

ATTEMPT, INDEX = "replay/attempt", "replay/index"  # labels
PORT = 29400
LOOK_SECONDS = 0.2
JOIN_SECONDS = 600
ENDED = ("Failed", "Succeeded")


def service(job: Job, attempt: int) -> dict[str, Any]:
    """An address of the first pod's store that does not depend on DNS, which may remember that there was none."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{job.name}-{attempt}"},
        "spec": {
            "selector": {ATTEMPT: str(attempt), INDEX: "0"},
            "ports": [{"port": PORT}],
            "publishNotReadyAddresses": True,
        },
    }


def pod(job: Job, attempt: int, index: int, store: str, factor: float, folder: str) -> dict[str, Any]:
    """A worker of an attempt.

    Args:
        attempt: how often all pods were made, from 1.
        index: of the worker; the first one has the rendezvous' store.
    """
    spec = manifest(job, factor, folder)["spec"]["template"]["spec"]
    labels = {ATTEMPT: str(attempt), INDEX: str(index)}
    spec["restartPolicy"] = "Never"
    spec["topologySpreadConstraints"][0]["labelSelector"] = {"matchLabels": {ATTEMPT: str(attempt)}}
    [container] = spec["containers"]
    container["command"] = ["python3", "-m", "torch.distributed.run"]
    variables = {
        "PET_NNODES": str(SIZE),
        "PET_NPROC_PER_NODE": "1",
        "PET_MAX_RESTARTS": "0",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"127.0.0.1:{PORT}" if index == 0 else f"{store}:{PORT}",
        "PET_RDZV_ID": f"{job.name}-{attempt}",
        "PET_RDZV_CONF": f"join_timeout={JOIN_SECONDS},is_host={int(index == 0)}",
        # As the operator sets them for stock torchrun: rank 0 need not be the pod that has the rendezvous' store.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TORCH_ELASTIC_WORKER_IDENTICAL": "1",
    }
    container["env"] += [{"name": name, "value": value} for name, value in variables.items()]
    container["env"].append({"name": "PET_LOCAL_ADDR", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    metadata = {"name": f"{job.name}-{attempt}-{index}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def is_over(pods: Sequence[Mapping[str, Any]], attempt: int) -> bool:
    """Whether a pod of an attempt has ended, or is gone."""
    own = [found for found in pods if found["metadata"]["labels"].get(ATTEMPT) == str(attempt)]
    return len(own) < SIZE or any(found.get("status", {}).get("phase") in ENDED for found in own)


class RestartAll:
    """Makes the pods, and makes all of them again when one has ended; until cancelled."""

    def __init__(self, api: Api, namespace: str, job: Job, factor: float) -> None:
        self._api, self._namespace, self._job, self._factor = api, namespace, job, factor
        self.attempts = 0

    async def run(self) -> None:
        await self._make()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with suppress(*BROKEN, ApiError):
                pods = (await self._api.ask("GET", f"{pods_path(self._namespace)}?labelSelector={ATTEMPT}"))["items"]
                if is_over(pods, self.attempts):
                    await self._delete(pods)
                    await self._make()

    async def _make(self) -> None:
        self.attempts += 1
        path = f"/api/v1/namespaces/{self._namespace}/services"
        made = await self._api.ask("POST", path, service(self._job, self.attempts))
        for index in range(SIZE):
            wanted = pod(self._job, self.attempts, index, made["spec"]["clusterIP"], self._factor, self._namespace)
            await self._api.ask("POST", pods_path(self._namespace), wanted)

    async def _delete(self, pods: Sequence[Mapping[str, Any]]) -> None:
        for found in pods:
            if "deletionTimestamp" in found["metadata"]:
                continue
            try:
                await self._api.ask("DELETE", pods_path(self._namespace, found["metadata"]["name"]))
            except ApiError as error:
                if error.status != 404:
                    raise
