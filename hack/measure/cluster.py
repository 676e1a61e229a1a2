"""The kind cluster as a driver of faults, through its API server and Docker."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
from elastic_pytorch_client import names
from elastic_pytorch_local.faults.driver import Change, Driver, DriverError, Object
from elastic_pytorch_local.faults.steps import seconds_of

from measure.api import Api, ApiError, finds, pods_path
from measure.commands import Commands
from measure.kind_cluster import CONTROL_PLANE, OPERATOR_NAMESPACE, OPERATORS

TEMPLATE_LABEL = {"benchmark": "trial"}  # of pods that a drain removes
JobKind = tuple[str, str, str]  # the API version and plural of jobs, the label of their pods
ELASTIC_PYTORCH_JOB = (names.API_VERSION, names.PLURAL, names.LABEL_JOB_NAME)
BACK_SECONDS = 120.0
DELETION_SECONDS = 600.0
LOOK_SECONDS = 0.5
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases"
LEASE = "elastic-pytorch-operator"
KILL = "import os, time; print(time.time(), flush=True); os.kill({pid}, 9)"
# Docker can disconnect a network, but takes the node's routes away, and may change its address.
CUT = ("-t raw {} PREROUTING -i eth0 -j DROP", "-t mangle {} POSTROUTING -o eth0 -j DROP")


class ClusterDriver(Driver):
    def __init__(
        self, api: Api, commands: Commands, namespace: str, kind: JobKind = ELASTIC_PYTORCH_JOB
    ) -> None:
        self.api, self.commands, self.namespace = api, commands, namespace
        version, plural, self._label = kind
        self._jobs = f"/apis/{version}/namespaces/{namespace}/{plural}"

    async def create_job(self, manifest: Mapping[str, Any]) -> None:
        await self.api.ask("POST", self._jobs, dict(manifest))

    async def delete_job(self, name: str) -> None:
        path = f"{self._jobs}/{name}"
        await finds(self.api, "DELETE", path)
        async with asyncio.timeout(DELETION_SECONDS):
            # A watch would end meanwhile.
            while await finds(self.api, "GET", path) or await self.pods_of(name):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)

    async def pods_of(self, job: str) -> list[Object]:
        path = f"{pods_path(self.namespace)}?{self._selector(job)}"
        return list((await self.api.ask("GET", path))["items"])

    async def scale_job(self, name: str, replicas: int) -> None:
        await self.api.ask("PATCH", f"{self._jobs}/{name}/scale", {"spec": {"replicas": replicas}})

    async def suspend_job(self, name: str, *, suspend: bool) -> None:
        await self.api.ask("PATCH", f"{self._jobs}/{name}", {"spec": {"suspend": suspend}})

    async def delete_pod(self, name: str, *, force: bool) -> None:
        body = {"gracePeriodSeconds": 0} if force else None
        await finds(self.api, "DELETE", pods_path(self.namespace, name), body)

    async def kill_pod(self, pod: Mapping[str, Any]) -> None:
        states = pod["status"]["containerStatuses"]
        [status] = [s for s in states if s["name"] == names.TRAINING_CONTAINER or len(states) == 1]
        kill = "ctr -n k8s.io task kill --all --signal SIGKILL"
        container = status["containerID"].partition("://")[2]
        await self.commands.docker("exec", pod["spec"]["nodeName"], *kill.split(), container)

    async def kill_process(self, pod: Mapping[str, Any], pid: int) -> float:
        """Returns when it was killed, which is later than the command's begin."""
        name, python = pod["metadata"]["name"], ("python3", "-c", KILL.format(pid=pid))
        words = ("-n", self.namespace, "exec", name, "-c", names.TRAINING_CONTAINER, "--", *python)
        printed = await self.commands.kubectl(*words)
        try:
            return float(printed)
        except ValueError:
            raise DriverError(f"kubectl exec {name}: {printed!r}") from None

    def watch_jobs(self, name: str) -> AsyncIterator[Change]:
        return self.api.watch(self._jobs, f"fieldSelector=metadata.name%3D{name}")

    def watch_pods(self, job: str) -> AsyncIterator[Change]:
        return self.api.watch(pods_path(self.namespace), self._selector(job))

    def log_lines(self, pod: str) -> AsyncIterator[str]:
        return self.api.lines(f"{pods_path(self.namespace, pod)}/log?follow=true&timestamps=true")

    def _selector(self, job: str) -> str:
        ours = self._label == names.LABEL_JOB_NAME
        role = f",{names.LABEL_ROLE}%3D{names.ROLE_WORKER}" if ours else ""
        return f"labelSelector={self._label}%3D{job}{role}"

    async def operators(self) -> list[Object]:
        named = {
            str(pod["metadata"]["name"]): pod
            for pod in await operator_pods(self.api)
            if any(status.get("containerID") for status in container_statuses(pod))
        }
        leader = await leading_pod(self.api)
        return [named[name] for name in sorted(named, key=lambda name: (name != leader, name))]

    async def in_control_plane(self, command: str) -> None:
        await self.commands.docker("exec", CONTROL_PLANE, "sh", "-c", command)

    async def kill_node(self, node: str) -> None:
        await self.commands.docker("kill", node)

    async def start_node(self, node: str) -> None:
        since = time.time()
        await self.commands.docker("start", node)
        await self._back(node, since, pods_since=since)

    async def freeze_node(self, node: str) -> None:
        await self.commands.docker("pause", node)

    async def thaw_node(self, node: str) -> None:
        await self.commands.docker("unpause", node)

    async def drain_node(self, node: str) -> None:
        pods = ",".join(f"{key}={value}" for key, value in TEMPLATE_LABEL.items())
        options = ("--ignore-daemonsets", "--delete-emptydir-data")
        await self.commands.kubectl("drain", node, f"--pod-selector={pods}", *options)

    async def cordon_node(self, node: str) -> None:
        await self.commands.kubectl("cordon", node)

    async def uncordon_node(self, node: str) -> None:
        await self.commands.kubectl("uncordon", node)

    async def cut_node(self, node: str) -> None:
        """Drops every packet to and from the node, which closes no connection."""
        rules = "; ".join(f"iptables {rule.format('-I')}" for rule in CUT)
        await self.commands.docker("exec", node, "sh", "-ec", rules)

    async def mend_node(self, node: str) -> None:
        since = time.time()
        rules = "; ".join(
            f"while iptables {rule.format('-D')} 2>/dev/null; do :; done" for rule in CUT
        )
        await self.commands.docker("exec", node, "sh", "-c", rules)
        await self._back(node, since, pods_since=0.0)

    async def _back(self, node: str, since: float, *, pods_since: float) -> None:
        """Waits until the node is ready by a new Lease, and runs pods that began after a moment."""
        end = time.monotonic() + BACK_SECONDS
        lease_path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
        pods_on_node = f"{pods_path('kube-system')}?fieldSelector=spec.nodeName%3D{node}"
        while time.monotonic() < end:
            with suppress(ApiError, aiohttp.ClientError, TimeoutError):
                lease = await self.api.ask("GET", lease_path)
                found = await self.api.ask("GET", f"/api/v1/nodes/{node}")
                pods = await self.api.ask("GET", pods_on_node)
                running = all(_runs_since(pod, pods_since) for pod in pods["items"])
                if seconds_of(lease["spec"]["renewTime"]) > since and is_ready(found) and running:
                    return
            await asyncio.sleep(LOOK_SECONDS)
        raise TimeoutError(f"node {node} did not come back in {BACK_SECONDS:.0f} s")


async def operator_pods(api: Api) -> list[Object]:
    path = f"{pods_path(OPERATOR_NAMESPACE)}?labelSelector={OPERATORS}"
    return list((await api.ask("GET", path))["items"])


async def leading_pod(api: Api) -> str:
    """The operator's leading pod; empty: none."""
    lease = await api.ask("GET", f"{LEASES}/{LEASE}")
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def is_ready(manifest: Mapping[str, Any]) -> bool:
    conditions = manifest.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def is_alive(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is neither deleted nor ended: the operator may keep ended ones for logs."""
    ended = pod.get("status", {}).get("phase") in ("Failed", "Succeeded")
    return not ended and "deletionTimestamp" not in pod["metadata"]


def container_statuses(pod: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    return pod.get("status", {}).get("containerStatuses") or ()


def restarts_of(pods: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return {
        pod["metadata"]["name"]: sum(s.get("restartCount", 0) for s in container_statuses(pod))
        for pod in pods
    }


def _runs_since(pod: Mapping[str, Any], since: float) -> bool:
    states = container_statuses(pod)
    running = [s["state"].get("running") for s in states if s.get("ready") and "state" in s]
    began = [seconds_of(state["startedAt"]) for state in running if state is not None]
    return 0 < len(states) == len(began) and min(began) >= int(since)
