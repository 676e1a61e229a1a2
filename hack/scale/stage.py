"""The fake nodes, the load generator and the jobs on the cluster, and their faults."""

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
from measure.cluster import ClusterDriver, leading_pod, operator_pods, restarts_of
from measure.commands import Commands
from measure.kind_cluster import OPERATOR_NAMESPACE, ROOT

from scale.fake_nodes import LABEL, PLACEMENT
from scale.observations import Observations

NAMESPACE = "scale"
CHART = ROOT / "charts" / "elastic-pytorch-operator"
GENERATOR = "load-generator"
LINK = ("first_connection", "http_connection", "retry", "rounds", "stream")
CODE = {  # of the load generator, by the path below its folder
    f"{package}/{name}.py": folder
    for package, folder, modules in (
        ("scale", ROOT / "hack", ("__init__", "agent", "connection", "generator")),
        ("elastic_pytorch", ROOT / "worker_image", ("log",)),
        ("elastic_pytorch/operator_link", ROOT / "worker_image", LINK),
    )
    for name in modules
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
    """The load generator on a node's own network, which has the addresses of the fake pods."""
    environment = {"PYTHONPATH": "/load", "JOBS_NAMESPACE": NAMESPACE}
    container = {
        "name": "generator",
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": ["python3", "-m", "scale.generator"],
        # Without a request, a busy machine would starve it, and its agents would give up
        # handshakes.
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
    way = "local {} dev lo" if at == node else f"{{}} via {address}"
    return "; ".join(f"ip route {verb} {way.format(addresses)}" for addresses in ranges)


class Stage:
    def __init__(self, api: Api, commands: Commands, jobs: int, workers: int) -> None:
        self.api, self.commands = api, commands
        self.jobs, self.workers = [f"job-{number}" for number in range(jobs)], workers
        self.observed, self.deleted = Observations(), 0

    @asynccontextmanager
    async def set(self) -> AsyncIterator[None]:
        """Runs the load generator, with routes to its agents, beside the fake nodes.

        The operator's nodes get the same share of the processors as the control plane's, which also
        has the load generator: otherwise it would slow the operator, as no real agent does.
        """
        # Of an earlier run that was killed.
        await remove_namespace(self.api, NAMESPACE, REMOVAL_SECONDS)
        real, ranges = await self._find_nodes()
        place, node = next(
            entry for entry in real.items() if CONTROL_PLANE in entry[1]["metadata"]["labels"]
        )
        addresses = {a["type"]: a["address"] for a in node["status"]["addresses"]}
        address, docker = addresses["InternalIP"], self.commands.docker
        follower = asyncio.create_task(self._follow())
        try:
            for name in real:
                await docker("update", "--cpu-shares", CONTROL_PLANE_SHARES, name)
                way = routes(ranges, place, address, at=name)
                await docker("exec", name, "sh", "-ec", way)
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
            for name in real:
                shares = CONTROL_PLANE_SHARES if name == place else OTHER_SHARES
                await docker("update", "--cpu-shares", shares, name)
                way = routes(ranges, place, address, at=name, verb="del")
                await docker("exec", name, "sh", "-c", way)

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
        of_job = f"{names.LABEL_JOB_NAME}%3D{job},{names.LABEL_ROLE}%3D{names.ROLE_WORKER}"
        query = f"{pods_path(NAMESPACE)}?labelSelector={of_job}&limit=10"
        pods = [pod["metadata"] for pod in (await self.api.ask("GET", query))["items"]]
        victim = pods[turn % len(pods)]["name"]
        at = time.time()
        await self.api.ask("DELETE", pods_path(NAMESPACE, victim), {"gracePeriodSeconds": 0})
        self.deleted += 1
        return at

    async def operators(self) -> dict[str, dict[str, Any]]:
        found = ((pod["metadata"], pod) for pod in await operator_pods(self.api))
        return {meta["name"]: pod for meta, pod in found if "deletionTimestamp" not in meta}

    async def leader(self) -> str:
        """Waits until one operator leads and all are ready; returns its name."""
        async with asyncio.timeout(READY_SECONDS):
            while True:
                deployment, pods = await self.api.ask("GET", OPERATOR), await self.operators()
                leader = await leading_pod(self.api)
                wanted = deployment["spec"]["replicas"]
                ready = deployment["status"].get("readyReplicas")
                if leader in pods and ready == wanted == len(pods):
                    return leader
                await asyncio.sleep(LOOK_SECONDS)

    async def operator_ends(self) -> int:
        return sum(restarts_of((await self.operators()).values()).values())

    async def save_logs(self, folder: Path) -> None:
        """Keeps the operator's logs, also of earlier containers, before their pods are deleted."""
        for pod in await self.operators():
            for which, query in (("", ""), ("-before", "?previous=true")):
                path = f"{pods_path(OPERATOR_NAMESPACE, pod)}/log{query}"
                with suppress(aiohttp.ClientError, TimeoutError):
                    if lines := [line async for line in self.api.lines(path)]:
                        name = f"{len(self.jobs)}x{self.workers}-{pod}{which}.log"
                        (folder / name).write_text("\n".join(lines))

    async def kill_leader(self) -> float:
        """Kills the leader by SIGKILL, so that it keeps its Lease, deletes its pod; returns when.

        The load generator then reports which jobs the next leader has answered.
        """
        leader = await self.leader()
        pod = (await self.operators())[leader]
        at, path = time.time(), pods_path(OPERATOR_NAMESPACE, leader)
        await ClusterDriver(self.api, self.commands, OPERATOR_NAMESPACE).kill_pod(pod)
        await self.api.ask("DELETE", path, {"gracePeriodSeconds": 0})
        listen = ("exec", GENERATOR, "--", "sh", "-c", "kill -USR1 1")
        await self.commands.kubectl("-n", NAMESPACE, *listen)
        return at

    @asynccontextmanager
    async def values(self, file: str) -> AsyncIterator[None]:
        if not file:
            yield
            return
        helm, release = self.commands.helm, "elastic-pytorch-operator"
        namespace = ("--namespace", OPERATOR_NAMESPACE)
        wait = ("--wait", "--timeout=3m")
        history = await helm("history", release, *namespace, "--max=1", "--output=json")
        before = str(json.loads(history)[0]["revision"])
        values = ("--reuse-values", f"--values={file}")
        try:
            await helm("upgrade", release, str(CHART), *namespace, *wait, *values)
            yield
        finally:
            await helm("rollback", release, before, *namespace, *wait)

    async def operator_settings(self) -> dict[str, Any]:
        template = (await self.api.ask("GET", OPERATOR))["spec"]["template"]
        container = template["spec"]["containers"][0]
        return {
            "resources": container["resources"],
            "leases": [a for a in container["args"] if a.startswith(LEASE_OPTIONS)],
        }

    async def _find_nodes(self) -> tuple[dict[str, dict[str, Any]], list[str]]:
        """The real nodes by name, and the pod addresses of all fake nodes, once they have some."""
        async with asyncio.timeout(READY_SECONDS):
            while True:
                nodes = (await self.api.ask("GET", "/api/v1/nodes"))["items"]
                fake = [node for node in nodes if LABEL in node["metadata"]["labels"]]
                ranges = [node["spec"].get("podCIDR") for node in fake]
                if all(ranges):
                    real = {node["metadata"]["name"]: node for node in nodes if node not in fake}
                    return real, ranges
                await asyncio.sleep(LOOK_SECONDS)

    async def _start_generator(self, node: str) -> None:
        deployment = await self.api.ask("GET", OPERATOR)
        operator = deployment["spec"]["template"]["spec"]["containers"][0]
        code = {path.replace("/", "."): (at / path).read_text() for path, at in CODE.items()}
        rules = [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
        ]
        named = {"metadata": {"name": GENERATOR}}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": GENERATOR}
        subjects = [{"kind": "ServiceAccount", "name": GENERATOR, "namespace": NAMESPACE}]
        pod = generator_pod(operator["image"], operator["imagePullPolicy"], node)
        core = f"/api/v1/namespaces/{NAMESPACE}"
        roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        await self.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await self.api.ask("POST", f"{core}/serviceaccounts", named)
        await self.api.ask("POST", f"{core}/configmaps", named | {"data": code})
        await self.api.ask("POST", f"{roles}/roles", named | {"rules": rules})
        binding = named | {"roleRef": role, "subjects": subjects}
        await self.api.ask("POST", f"{roles}/rolebindings", binding)
        await self.api.ask("POST", f"{core}/pods", pod)

    async def _follow(self) -> None:
        """Reads the generator's log, again from its begin after a break: lines count once."""
        path = f"{pods_path(NAMESPACE, GENERATOR)}/log?follow=true"
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                async for line in self.api.lines(path):
                    self.observed.read(line)
            await asyncio.sleep(LOOK_SECONDS)

    async def _remove_load(self) -> None:
        """Removes generator, jobs, pods and namespace: kwok is slow to confirm graceful ends."""
        at_once = {"gracePeriodSeconds": 0}
        for path, body in (
            (pods_path(NAMESPACE, GENERATOR), at_once),
            (jobs_path(NAMESPACE), {}),
            (pods_path(NAMESPACE), at_once),
        ):
            with suppress(ApiError, TimeoutError):
                await self.api.ask("DELETE", path, body)
        await remove_namespace(self.api, NAMESPACE, REMOVAL_SECONDS)
