"""The kind cluster's nodes: killed, cut off, drained, and brought back."""

import asyncio
import time
from collections import Counter
from typing import Any

import aiohttp
from elastic_pytorch_local.faults.steps import seconds_of
from measure.api import Api, ApiError, pods_path
from measure.commands import Commands

TEMPLATE_LABEL = "benchmark=trial"  # of the pods that a drain removes
BACK_SECONDS = 120.0
LOOK_SECONDS = 1.0
# Docker can disconnect a network, too, but it takes the node's routes away, and cannot promise the same address later.
CUT = ("-t raw {} PREROUTING -i eth0 -j DROP", "-t mangle {} POSTROUTING -o eth0 -j DROP")


class Nodes:
    """Does to nodes, by name, what happens to nodes, and undoes it."""

    def __init__(self, api: Api, commands: Commands) -> None:
        self._api, self._commands = api, commands

    async def kill(self, node: str) -> None:
        await self._commands.docker("kill", node)

    async def start(self, node: str) -> None:
        since = time.time()
        await self._commands.docker("start", node)
        await self._back(node, since, pods_since=since)

    async def kill_container(self, node: str, container: str) -> None:
        """Kills all processes of a container, without Kubernetes."""
        task = "-n k8s.io task kill --all --signal SIGKILL"
        await self._commands.docker("exec", node, "ctr", *task.split(), container)

    async def drain(self, node: str) -> None:
        """Evicts the benchmark's pods; those of other jobs stay on the node."""
        pods = f"--pod-selector={TEMPLATE_LABEL}"
        await self._commands.kubectl("drain", node, pods, "--ignore-daemonsets", "--delete-emptydir-data")

    async def uncordon(self, node: str) -> None:
        await self._commands.kubectl("uncordon", node)

    async def cut(self, node: str) -> None:
        """Drops every packet to and from the node. Its processes run on, and no connection is closed on either side."""
        rules = "; ".join(f"iptables {rule.format('-I')}" for rule in CUT)
        await self._commands.docker("exec", node, "sh", "-ec", rules)

    async def mend(self, node: str) -> None:
        since = time.time()
        rules = "; ".join(f"while iptables {rule.format('-D')} 2>/dev/null; do :; done" for rule in CUT)
        await self._commands.docker("exec", node, "sh", "-c", rules)
        await self._back(node, since, pods_since=0.0)

    async def _back(self, node: str, since: float, *, pods_since: float) -> None:
        """Waits until the node is ready, and not only remembered as such, and runs pods that began after a moment."""
        end = time.monotonic() + BACK_SECONDS
        while time.monotonic() < end:
            try:
                lease = await self._api.ask("GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}")
                found = await self._api.ask("GET", f"/api/v1/nodes/{node}")
                pods = await self._api.ask("GET", f"{pods_path('kube-system')}?fieldSelector=spec.nodeName%3D{node}")
                running = all(_runs_since(pod, pods_since) for pod in pods["items"])
                if seconds_of(lease["spec"]["renewTime"]) > since and is_ready(found) and running:
                    return
            except (ApiError, aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(LOOK_SECONDS)
        raise TimeoutError(f"node {node} did not come back in {BACK_SECONDS:.0f} s")


def lone_victims(node_of: dict[str, str], ranked: list[str]) -> list[str]:
    """Returns the members other than rank 0 that are alone on their node, the highest rank first."""
    crowd = Counter(node_of.values())
    return [pod for pod in reversed(ranked[1:]) if crowd[node_of[pod]] == 1]


def crowded(node_of: dict[str, str], ranked: list[str]) -> str | None:
    """Returns a member that shares its node with another one, the highest rank first; None if none does."""
    crowd = Counter(node_of.values())
    return next((pod for pod in reversed(ranked) if crowd[node_of[pod]] > 1), None)


def is_ready(manifest: dict[str, Any]) -> bool:
    """Returns whether the Ready condition of a pod or a node is true."""
    conditions = manifest.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def has_ended(pod: dict[str, Any]) -> bool:
    """Returns whether no container of a pod runs again. The operator may keep such a pod for its log."""
    return pod.get("status", {}).get("phase") in ("Failed", "Succeeded")


def _runs_since(pod: dict[str, Any], since: float) -> bool:
    states = pod["status"].get("containerStatuses") or ()
    running = [s["state"]["running"] for s in states if s.get("ready") and "running" in s.get("state", {})]
    return 0 < len(states) == len(running) and all(seconds_of(state["startedAt"]) >= int(since) for state in running)
