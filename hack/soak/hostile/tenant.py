"""A tenant that may edit a few namespaces and does everything wrong throughout a run."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.job_view import view_job
from elastic_pytorch_local.faults.watcher import background
from elastic_pytorch_operator.tls.certificates import make_authority, make_serving
from measure.api import Api, ApiError, finds, jobs_path, pods_path, remove_namespace
from measure.cluster import operator_pods
from measure.kind_cluster import KUBECONFIG

from soak.hostile import acts, manifests
from soak.hostile.manifests import Namespaces

# Does an act, in a turn from 0; returns how often it was done.
Do = Callable[[int], Coroutine[Any, Any, int]]
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
NAMESPACES = "/api/v1/namespaces"
TOKEN_SECONDS = 12 * 3600
GONE_SECONDS = 180.0
CHURN_SECONDS = 1.0
SEEN_SECONDS = 30.0  # until the operator has made pods in the passing namespace
WANTING_JOBS, WANTED_REPLICAS = 2, 4  # in each namespace where no pod can start


class Tenant:
    """Does all acts repeatedly. Programs in the cluster count theirs in a folder of all nodes."""

    def __init__(self, platform: Api, api: Api, namespaces: Namespaces, folder: Path) -> None:
        self._platform, self._api = platform, api
        self._namespaces, self._folder = namespaces, folder
        self._done = Counter[str]()
        self.trouble: dict[str, str] = {}  # the last one of each loop

    async def run(self) -> None:
        loops: Mapping[str, tuple[float, Do]] = {  # each with its pause in seconds
            "jobs": (10.0, self._keep_jobs),
            "strays": (10.0, self._keep_strays),
            "scrape": (10.0, self._tell_addresses),
            "annotations": (6.0, partial(self._write_metadata, acts.unreadable)),
            "large-metadata": (15.0, partial(self._write_metadata, acts.large_metadata)),
            "quantities": (5.0, partial(self._replace_job, acts.UNBUILDABLE_QUANTITIES)),
            "templates": (5.0, partial(self._replace_job, acts.UNBUILDABLE_TEMPLATES)),
            "large-jobs": (15.0, partial(self._replace_job, acts.LARGE)),
            "quota": (5.0, self._look_for_refusals),
            "churn": (CHURN_SECONDS, self._churn),
            "namespace": (5.0, self._pass_namespace),
        }
        async with asyncio.TaskGroup() as group:
            for name, (seconds, do) in loops.items():
                group.create_task(self._repeat(name, seconds, do))

    def counts(self) -> dict[str, int]:
        return {act: self._done[act] + read_tallies(self._folder, act) for act in acts.ACTS}

    def missing(self) -> list[str]:
        return [
            f"{act}{self.trouble.get(act, '') and f' ({self.trouble[act]})'}"
            for act, n in self.counts().items()
            if not n
        ]

    async def _repeat(self, name: str, seconds: float, do: Do) -> None:
        for turn in count():
            try:
                self._done[name] += await do(turn)
            except Exception as error:  # whatever it is, the next turn may do better
                self.trouble[name] = f"{type(error).__name__} {error}"
            await asyncio.sleep(seconds)

    async def _keep_jobs(self, _: int) -> int:
        spaces = self._namespaces
        asleep = {"command": ["sleep", "infinity"], "args": []}
        wanted = [(spaces.own, manifests.speaking_job(name, spaces)) for name in manifests.SPEAKING]
        wanted += [(spaces.own, manifests.wordy_job(spaces))]
        changes: Mapping[str, Any] = {"pod": {"nodeSelector": {}}, "container": asleep}
        wanted += [(spaces.own, manifests.job(manifests.ANNOTATED_JOB, changes=changes))]
        for namespace in (spaces.hanging, spaces.full):
            wanted += [
                (namespace, manifests.job(f"wants-{n}", replicas=WANTED_REPLICAS))
                for n in range(WANTING_JOBS)
            ]
        for namespace, job in wanted:
            path = jobs_path(namespace, job["metadata"]["name"])
            try:
                if view_job(await self._api.ask("GET", path)).ended:
                    await self._api.ask("DELETE", path)
            except ApiError as error:
                if error.status != 404:
                    raise
                await self._api.ask("POST", jobs_path(namespace), job)
        return 0

    async def _tell_addresses(self, _: int) -> int:
        """Writes the operators' addresses for the program that scrapes, and counts by itself."""
        statuses = [pod["status"] for pod in await operator_pods(self._platform)]
        addresses = [status["podIP"] for status in statuses if status.get("podIP")]
        new = self._folder / "operators.new"
        new.write_text(json.dumps(addresses))
        new.replace(self._folder / "operators")
        return 0

    async def _keep_strays(self, _: int) -> int:
        """Keeps a stray pod of each unreadable text: the operator deletes those it can read."""
        own = self._namespaces.own
        job = await self._api.ask("GET", jobs_path(own, manifests.ANNOTATED_JOB))
        for number in range(len(acts.UNREADABLE_TEXTS)):
            stray = manifests.stray_pod(number, job["metadata"])
            await _create(self._api, pods_path(own), stray)
        return 0

    async def _write_metadata(self, change: Callable[[int], dict[str, Any]], turn: int) -> int:
        own, job, patch = self._namespaces.own, manifests.ANNOTATED_JOB, {"metadata": change(turn)}
        path = pods_path(own)
        await self._api.ask("PATCH", jobs_path(own, job), patch)
        selector = f"labelSelector={names.LABEL_JOB_NAME}%3D{job}"
        found = await self._api.ask("GET", f"{path}?{selector}")
        pods = [
            name
            for pod in found["items"]
            if not (name := pod["metadata"]["name"]).startswith(manifests.STRAY)
        ]
        for name in pods:
            await self._api.ask("PATCH", f"{path}/{name}", patch)
        return len(pods)

    async def _replace_job(self, table: Mapping[str, Mapping[str, Any]], turn: int) -> int:
        name, own = list(table)[turn % len(table)], self._namespaces.own
        await finds(self._api, "DELETE", jobs_path(own, name))
        job = manifests.job(name, changes=table[name])
        await self._api.ask("POST", jobs_path(own), job)
        return 1

    async def _look_for_refusals(self, _: int) -> int:
        jobs = (await self._api.ask("GET", jobs_path(self._namespaces.full)))["items"]
        return sum("exceeded quota" in json.dumps(job.get("status", {})) for job in jobs)

    async def _churn(self, turn: int) -> int:
        name = f"churn-{turn}"
        await self._api.ask("POST", jobs_path(self._namespaces.own), manifests.job(name))
        try:
            await asyncio.sleep(CHURN_SECONDS)
        finally:
            await finds(self._api, "DELETE", jobs_path(self._namespaces.own, name))
        return 1

    async def _pass_namespace(self, _: int) -> int:
        namespace = self._namespaces.passing
        await make_namespace(self._platform, namespace, self._namespaces.own)
        for number in range(WANTING_JOBS):
            await self._platform.ask(
                "POST", jobs_path(namespace), manifests.job(f"passes-{number}")
            )
        pods = list[Any]()
        async with asyncio.timeout(SEEN_SECONDS):
            while not pods:
                await asyncio.sleep(1)
                pods = (await self._platform.ask("GET", pods_path(namespace)))["items"]
        await remove_namespace(self._platform, namespace, GONE_SECONDS)
        return 1


def read_tallies(folder: Path, act: str) -> int:
    return sum(int(path.read_text()) for path in folder.glob(f"{act}.*") if path.suffix != ".new")


@asynccontextmanager
async def hostile_tenant(
    platform: Api, namespaces: Namespaces, folder: Path
) -> AsyncIterator[Tenant]:
    """A tenant that acts meanwhile. Its objects stay until `remove_tenants`."""
    token = await _set_up(platform, namespaces)
    async with Api.connect(KUBECONFIG, token) as api:
        tenant = Tenant(platform, api, namespaces, folder)
        async with background(tenant.run()):
            yield tenant


async def remove_tenants(platform: Api) -> None:
    """Removes the objects of all tenants of all runs: the webhook first, then the namespaces."""
    await platform.ask("DELETE", f"{WEBHOOKS}?labelSelector={manifests.SELECTOR}")
    found = (await platform.ask("GET", f"{NAMESPACES}?labelSelector={manifests.SELECTOR}"))["items"]
    await asyncio.gather(
        *(remove_namespace(platform, item["metadata"]["name"], GONE_SECONDS) for item in found)
    )


async def make_namespace(platform: Api, namespace: str, own: str) -> None:
    await _create(platform, NAMESPACES, manifests.namespace(namespace))
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    await _create(platform, path, manifests.role_binding(own))


async def _set_up(platform: Api, namespaces: Namespaces) -> str:
    """Makes the objects that always exist; returns the tenant's token."""
    own = f"{NAMESPACES}/{namespaces.own}"
    for namespace in (namespaces.own, namespaces.hanging, namespaces.full):
        await make_namespace(platform, namespace, namespaces.own)
    await _create(platform, f"{own}/serviceaccounts", {"metadata": {"name": manifests.ACCOUNT}})
    await _create(platform, f"{NAMESPACES}/{namespaces.full}/resourcequotas", manifests.no_pods())
    authority = make_authority(time.time())
    served = make_serving(authority, [f"{manifests.HANG}.{namespaces.own}.svc"], time.time())
    await _create(platform, f"{own}/configmaps", manifests.scripts(served.certificate + served.key))
    await _create(platform, f"{own}/services", manifests.hang_service())
    for program in manifests.PROGRAMS:
        path = f"/apis/apps/v1/namespaces/{namespaces.own}/deployments"
        await _create(platform, path, manifests.program(program, namespaces))
    await _create(platform, WEBHOOKS, manifests.hanging_webhook(namespaces, authority.certificate))
    request = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
    answer = await platform.ask("POST", f"{own}/serviceaccounts/{manifests.ACCOUNT}/token", request)
    return str(answer["status"]["token"])


async def _create(platform: Api, path: str, manifest: dict[str, Any]) -> None:
    try:
        await platform.ask("POST", path, manifest)
    except ApiError as error:
        if error.status != 409:
            raise
