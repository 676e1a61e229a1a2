"""The fake nodes, the load generator and the jobs on the cluster, and what is done to them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from elastic_pytorch_client import names
from elastic_pytorch_local.faults.watcher import until
from measure.api import Api, ApiError, jobs_path, pods_path, remove_namespace
from measure.cluster import ClusterDriver, leading_pod
from measure.commands import Commands
from measure.kind_cluster import OPERATOR_NAMESPACE, OPERATORS, ROOT

from scale.fake_nodes import LABEL, PLACEMENT
from scale.observations import Observations

NAMESPACE = "scale"
CHART = ROOT / "charts" / "elastic-pytorch-operator"
GENERATOR = "load-generator"
LINK = ("first_connection", "http_connection", "retry", "rounds", "stream")
CODE = {  # of the load generator, by the path below its folder
    **{
        f"scale/{name}.py": ROOT / "hack"
        for name in ("__init__", "agent", "connection", "generator")
    },
    **{
        f"elastic_pytorch/{name}.py": ROOT / "worker_image"
        for name in ("log", *(f"operator_link/{name}" for name in LINK))
    },
}
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
OPERATOR = f"/apis/apps/v1/namespaces/{OPERATOR_NAMESPACE}/deployments/elastic-pytorch-operator"
LEASE_OPTIONS = ("--lease-duration=", "--renew-deadline=", "--retry-period=")
CREATIONS = 8  # at once
CONTROL_PLANE_SHARES = "8192"  # of processor time, as in hack/kind/cluster.sh
OTHER_SHARES = "1024"
READY_SECONDS = 120.0
REMOVAL_SECONDS = 600.0
LOOK_SECONDS = 0.1


def job_manifest(name: str, workers: int) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "example.com/never-pulled", "args": ["train.py"]}
    template = {"spec": {**PLACEMENT, "containers": [container]}}
    sizes = {"replicas": workers, "minReplicas": max(1, workers // 2), "maxReplicas": workers}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {**sizes, "template": template},
    }


def generator_pod(image: str, pull_policy: str, node: str) -> dict[str, Any]:
    """Returns the load generator on a node's own network, where the addresses of the fake pods are."""
    environment = {"PYTHONPATH": "/load", "JOBS_NAMESPACE": NAMESPACE}
    container = {
        "name": "generator",
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": ["python3", "-m", "scale.generator"],
        # Without a request it would get no time at all while the machine is busy, and its agents
        # would give up handshakes.
        "resources": {"requests": {"cpu": "500m"}},
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "volumeMounts": [{"name": "code", "mountPath": "/load"}],
    }
    items = [{"key": path.replace("/", "."), "path": path} for path in CODE]
    spec = {
        "nodeName": node,
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "serviceAccountName": GENERATOR,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "code", "configMap": {"name": GENERATOR, "items": items}}],
    }
    return {"metadata": {"name": GENERATOR}, "spec": spec}


def routes(
    ranges: Sequence[str], node: str, address: str, *, at: str, verb: str = "replace"
) -> str:
    """Returns the commands by which a node reaches the fake pods at the node of the load generator, where they are local."""
    way = "local {} dev lo" if at == node else f"{{}} via {address}"
    return "; ".join(f"ip route {verb} {way.format(addresses)}" for addresses in ranges)


class Stage:
    def __init__(self, api: Api, commands: Commands, jobs: int, workers: int) -> None:
        self.api, self.commands = api, commands
        self.jobs, self.workers = [f"job-{number}" for number in range(jobs)], workers
        self.observed, self.deleted = Observations(), 0

    @asynccontextmanager
    async def set(self) -> AsyncIterator[None]:
        """The load generator, and the routes to its agents, until the end; the fake nodes are there.

        Meanwhile the operator's nodes have as large a share of the processors as the control
        plane's, where the load generator is, too. Otherwise that would take the operator's time
        away, as no agent of a real cluster does.
        """
        # An earlier run that was killed may have left it.
        await remove_namespace(self.api, NAMESPACE, REMOVAL_SECONDS)
        real, ranges = await self._find_nodes()
        place = next(
            name for name, node in real.items() if CONTROL_PLANE in node["metadata"]["labels"]
        )
        address = next(
            a["address"] for a in real[place]["status"]["addresses"] if a["type"] == "InternalIP"
        )
        follower = asyncio.create_task(self._follow())
        try:
            for node in real:
                await self.commands.docker("update", "--cpu-shares", CONTROL_PLANE_SHARES, node)
                await self.commands.docker(
                    "exec", node, "sh", "-ec", routes(ranges, place, address, at=node)
                )
            await self._start_generator(place)
            await until(
                lambda: self.observed.ticks,
                seconds=READY_SECONDS,
                what="the load generator to start",
            )
            yield
        finally:
            follower.cancel()
            await self._remove_load()
            for node in real:
                await self.commands.docker(
                    "update",
                    "--cpu-shares",
                    CONTROL_PLANE_SHARES if node == place else OTHER_SHARES,
                    node,
                )
                await self.commands.docker(
                    "exec", node, "sh", "-c", routes(ranges, place, address, at=node, verb="del")
                )

    async def create_jobs(self) -> None:
        waiting = iter(self.jobs)

        async def create() -> None:
            for name in waiting:
                await self.api.ask("POST", jobs_path(NAMESPACE), job_manifest(name, self.workers))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(CREATIONS):
                tasks.create_task(create())

    def whole(self) -> bool:
        return all(self.observed.whole(job, self.workers) for job in self.jobs)

    async def lose_worker(self, job: str, turn: int) -> float:
        selector = f"labelSelector={names.LABEL_JOB_NAME}%3D{job},{names.LABEL_ROLE}%3D{names.ROLE_WORKER}&limit=10"
        pods = [
            pod["metadata"]
            for pod in (await self.api.ask("GET", f"{pods_path(NAMESPACE)}?{selector}"))["items"]
        ]
        victim = pods[turn % len(pods)]["name"]
        at = time.time()
        await self.api.ask("DELETE", pods_path(NAMESPACE, victim), {"gracePeriodSeconds": 0})
        self.deleted += 1
        return at

    async def operators(self) -> dict[str, dict[str, Any]]:
        found = await self.api.ask(
            "GET", f"{pods_path(OPERATOR_NAMESPACE)}?labelSelector={OPERATORS}"
        )
        return {
            pod["metadata"]["name"]: pod
            for pod in found["items"]
            if "deletionTimestamp" not in pod["metadata"]
        }

    async def leader(self) -> str:
        """Waits until one operator leads and all are ready; returns its name."""
        async with asyncio.timeout(READY_SECONDS):
            while True:
                deployment, pods = await self.api.ask("GET", OPERATOR), await self.operators()
                leader = await leading_pod(self.api)
                wanted = deployment["spec"]["replicas"]
                if leader in pods and deployment["status"].get("readyReplicas") == wanted == len(
                    pods
                ):
                    return leader
                await asyncio.sleep(LOOK_SECONDS)

    async def operator_ends(self) -> int:
        """Returns how often containers of the operator's present pods have ended."""
        states = [
            s
            for pod in (await self.operators()).values()
            for s in pod["status"].get("containerStatuses") or ()
        ]
        return sum(state["restartCount"] for state in states)

    async def save_logs(self, folder: Path) -> None:
        """Keeps what the operator's pods have said so far, also in containers before the last: the log of a deleted pod goes with it."""
        for pod in await self.operators():
            for which, query in (("", ""), ("-before", "?previous=true")):
                with suppress(aiohttp.ClientError, TimeoutError):
                    lines = [
                        line
                        async for line in self.api.lines(
                            f"{pods_path(OPERATOR_NAMESPACE, pod)}/log{query}"
                        )
                    ]
                    if lines:
                        (folder / f"{len(self.jobs)}x{self.workers}-{pod}{which}.log").write_text(
                            "\n".join(lines)
                        )

    async def save_losses(self, folder: Path) -> None:
        """Keeps the events of lost workers: they say why the operator took each for lost."""
        path = f"/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=reason%3DWorkerLost"
        events = (await self.api.ask("GET", path))["items"]
        told = [f"{event['metadata']['creationTimestamp']} {event['message']}" for event in events]
        (folder / f"{len(self.jobs)}x{self.workers}-lost.log").write_text("\n".join(sorted(told)))

    async def kill_leader(self) -> float:
        """Ends the leader by SIGKILL, so that it gives nothing back, and deletes its pod; returns when.

        From then on the load generator says which jobs have been answered by another one.
        """
        leader = await self.leader()
        pod = (await self.operators())[leader]
        at = time.time()
        await ClusterDriver(self.api, self.commands, OPERATOR_NAMESPACE).kill_pod(pod)
        await self.api.ask(
            "DELETE", pods_path(OPERATOR_NAMESPACE, leader), {"gracePeriodSeconds": 0}
        )
        await self.commands.kubectl(
            "-n", NAMESPACE, "exec", GENERATOR, "--", "sh", "-c", "kill -USR1 1"
        )
        return at

    @asynccontextmanager
    async def values(self, file: str) -> AsyncIterator[None]:
        """Gives the operator's release more values of the chart for a while; an empty name: it keeps its own."""
        if not file:
            yield
            return
        release = (
            "elastic-pytorch-operator",
            "--namespace",
            OPERATOR_NAMESPACE,
            "--wait",
            "--timeout=3m",
        )
        before = json.loads(
            await self.commands.helm("history", *release[:3], "--max=1", "--output=json")
        )[0]["revision"]
        try:
            await self.commands.helm(
                "upgrade",
                release[0],
                str(CHART),
                *release[1:],
                "--reuse-values",
                f"--values={file}",
            )
            yield
        finally:
            await self.commands.helm("rollback", release[0], str(before), *release[1:])

    async def operator_settings(self) -> dict[str, Any]:
        """Returns the arguments and resources of the operator's container."""
        container = (await self.api.ask("GET", OPERATOR))["spec"]["template"]["spec"]["containers"][
            0
        ]
        return {
            "resources": container["resources"],
            "leases": [a for a in container["args"] if a.startswith(LEASE_OPTIONS)],
        }

    async def _find_nodes(self) -> tuple[dict[str, dict[str, Any]], list[str]]:
        """Returns the real nodes by name, and the pods' addresses of the fake ones, once all have some."""
        async with asyncio.timeout(READY_SECONDS):
            while True:
                nodes = (await self.api.ask("GET", "/api/v1/nodes"))["items"]
                fake = [
                    node["spec"].get("podCIDR")
                    for node in nodes
                    if LABEL in node["metadata"]["labels"]
                ]
                if all(fake):
                    real = {
                        node["metadata"]["name"]: node
                        for node in nodes
                        if LABEL not in node["metadata"]["labels"]
                    }
                    return real, fake
                await asyncio.sleep(LOOK_SECONDS)

    async def _start_generator(self, node: str) -> None:
        deployment = await self.api.ask("GET", OPERATOR)
        operator = deployment["spec"]["template"]["spec"]["containers"][0]
        code = {
            path.replace("/", "."): (folder / path).read_text() for path, folder in CODE.items()
        }
        rules = [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
        ]
        named = {"metadata": {"name": GENERATOR}}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": GENERATOR}
        subjects = [{"kind": "ServiceAccount", "name": GENERATOR, "namespace": NAMESPACE}]
        pod = generator_pod(operator["image"], operator["imagePullPolicy"], node)
        core, roles = (
            f"/api/v1/namespaces/{NAMESPACE}",
            f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}",
        )
        await self.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await self.api.ask("POST", f"{core}/serviceaccounts", named)
        await self.api.ask("POST", f"{core}/configmaps", named | {"data": code})
        await self.api.ask("POST", f"{roles}/roles", named | {"rules": rules})
        await self.api.ask(
            "POST", f"{roles}/rolebindings", named | {"roleRef": role, "subjects": subjects}
        )
        await self.api.ask("POST", f"{core}/pods", pod)

    async def _follow(self) -> None:
        """Reads what the generator prints; from the beginning if the connection breaks, as `Observations` keeps no line twice."""
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                async for line in self.api.lines(
                    f"{pods_path(NAMESPACE, GENERATOR)}/log?follow=true"
                ):
                    self.observed.read(line)
            await asyncio.sleep(LOOK_SECONDS)

    async def _remove_load(self) -> None:
        """The load generator, then the pods, then their namespace: kwok confirms a deletion with grace, one by one."""
        with suppress(ApiError, TimeoutError):
            await self.api.ask("DELETE", pods_path(NAMESPACE, GENERATOR), {"gracePeriodSeconds": 0})
        with suppress(ApiError, TimeoutError):
            await self.api.ask("DELETE", jobs_path(NAMESPACE), {})
        with suppress(ApiError, TimeoutError):
            await self.api.ask("DELETE", pods_path(NAMESPACE), {"gracePeriodSeconds": 0})
        await remove_namespace(self.api, NAMESPACE, REMOVAL_SECONDS)
