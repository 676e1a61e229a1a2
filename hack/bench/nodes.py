"""The kind cluster's nodes: killed, cut off, drained, and brought back."""

import asyncio
import time
from collections import Counter
from datetime import datetime
from typing import Any

import aiohttp
from api import Api, ApiError
from commands import Commands

BACK_SECONDS = 120.0
LOOK_SECONDS = 1.0
CUT = (("raw", "PREROUTING", "-i"), ("mangle", "POSTROUTING", "-o"))


class Nodes:
    """Acts on nodes by name; what it has done it can undo."""

    def __init__(self, api: Api, commands: Commands) -> None:
        self._api = api
        self._commands = commands

    async def kill(self, node: str) -> None:
        """End the node and all that runs on it, without a goodbye."""
        await self._commands.docker("kill", node)

    async def start(self, node: str) -> None:
        """Start a killed node, and wait until it is well."""
        since = time.time()
        await self._commands.docker("start", node)
        await self._back(node, since, rebooted=True)

    async def kill_container(self, node: str, container: str) -> None:
        """End all processes of a container, past Kubernetes."""
        await self._commands.docker(
            "exec", node, "ctr", "-n", "k8s.io", "task", "kill", "--all", "--signal", "SIGKILL", container
        )

    async def cut(self, node: str) -> None:
        """Drop every packet to and from the node. All on it runs on, and no connection is closed on either side.

        Docker can disconnect a network, too, but it takes the node's routes away, and cannot promise the same address later.
        """
        rules = "; ".join(f"iptables -t {table} -I {chain} {flag} eth0 -j DROP" for table, chain, flag in CUT)
        await self._commands.docker("exec", node, "sh", "-ec", rules)

    async def mend(self, node: str) -> None:
        """Let packets through to a node that was cut off, and wait until it is well."""
        since = time.time()
        await self._let_through(node)
        await self._back(node, since, rebooted=False)

    async def _let_through(self, node: str) -> None:
        rules = "; ".join(
            f"while iptables -t {table} -D {chain} {flag} eth0 -j DROP 2>/dev/null; do :; done" for table, chain, flag in CUT
        )
        await self._commands.docker("exec", node, "sh", "-c", rules)

    async def _back(self, node: str, since: float, *, rebooted: bool) -> None:
        end = time.monotonic() + BACK_SECONDS
        while time.monotonic() < end:
            try:
                if await self._is_well(node, since, rebooted=rebooted):
                    return
            except (ApiError, aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(LOOK_SECONDS)
        raise TimeoutError(f"node {node} did not come back in {BACK_SECONDS:.0f} s")

    async def _is_well(self, node: str, since: float, *, rebooted: bool) -> bool:
        """Whether the node is ready, and not only remembered as such."""
        lease = await self._api.ask("GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}")
        if _time_of(lease["spec"]["renewTime"]) <= since:
            return False
        found = await self._api.ask("GET", f"/api/v1/nodes/{node}")
        if not any(c["type"] == "Ready" and c["status"] == "True" for c in found["status"]["conditions"]):
            return False
        pods = await self._api.items("/api/v1/namespaces/kube-system/pods")
        here = [pod for pod in pods if pod["spec"].get("nodeName") == node]
        return all(_runs_since(pod, since if rebooted else 0.0) for pod in here)


def lone_victims(node_of: dict[str, str], ranked: list[str]) -> list[str]:
    """The members other than rank 0 that are alone on their node, the highest rank first."""
    crowd = Counter(node_of.values())
    return [pod for pod in reversed(ranked[1:]) if crowd[node_of[pod]] == 1]


def crowded(node_of: dict[str, str], ranked: list[str]) -> str | None:
    """A member that shares its node with another one, the highest rank first; None if none does."""
    crowd = Counter(node_of.values())
    return next((pod for pod in reversed(ranked) if crowd[node_of[pod]] > 1), None)


def _runs_since(pod: dict[str, Any], since: float) -> bool:
    statuses = pod["status"].get("containerStatuses") or ()
    if not statuses:
        return False
    for status in statuses:
        running = status.get("state", {}).get("running")
        if not (status.get("ready") and running and _time_of(running["startedAt"]) >= int(since)):
            return False
    return True


def _time_of(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
