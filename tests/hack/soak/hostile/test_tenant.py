"""The tenant's acts on an API server that only takes note, and what is counted of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from measure.api import ApiError
from soak.hostile import acts, tenant
from soak.hostile.manifests import Namespaces
from soak.hostile.tenant import Tenant, read_tallies, remove_tenants

from tests.waiting import MAX_PAUSE_SECONDS


class Cluster:
    """Has what `objects` says by path, and refuses what `refused` is a part of."""

    def __init__(self, objects: dict[str, Any] | None = None) -> None:
        self.objects, self.refused = objects or {}, "nothing"
        self.done: list[str] = []

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        short = path.rpartition("/namespaces/")[2] if "/namespaces/" in path else path.rpartition("/")[2]
        if self.refused in path:
            raise ApiError(403, "forbidden")
        if method != "GET":
            self.done.append(
                f"{method} {short}" + (f" {body['metadata'].get('name', '')}" if method == "POST" and body else "")
            )
            return {"metadata": {"name": "annotated", "uid": "u1"}}
        if short not in self.objects:
            raise ApiError(404, "not found")
        found: dict[str, Any] = self.objects[short]
        return found


def a_tenant(cluster: Cluster, folder: Path) -> Tenant:
    return Tenant(cluster, cluster, Namespaces("s"), folder)  # type: ignore[arg-type]


async def turn_of(name: str, cluster: Cluster, folder: Path) -> Tenant:
    """The tenant after the first turns of all its loops, until something was done in one of them."""
    someone = a_tenant(cluster, folder)
    run = asyncio.create_task(someone.run())
    async with asyncio.timeout(60):
        while name not in someone.trouble and not any(name in line for line in cluster.done):
            await asyncio.sleep(MAX_PAUSE_SECONDS / 10)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    return someone


def test_counts_are_those_of_all_processes_of_a_program(tmp_path: Path) -> None:
    for name, text in {"flood.a.1": "30", "flood.a.9": "12", "flood.a.new": "x", "webhook.b.1": "5"}.items():
        (tmp_path / name).write_text(text)
    assert read_tallies(tmp_path, acts.FLOOD) == 42
    someone = a_tenant(Cluster(), tmp_path)
    assert someone.counts() == dict.fromkeys(acts.ACTS, 0) | {"flood": 42, "webhook": 5}
    assert set(someone.missing()) == set(acts.ACTS) - {"flood", "webhook"}


async def test_a_loop_that_fails_tells_why_and_others_go_on(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.refused = "elasticpytorchjobs"
    someone = await turn_of(acts.CHURN, cluster, tmp_path)
    assert "churn (ApiError forbidden)" in someone.missing()
    assert "flood" in someone.missing()


async def test_jobs_that_are_not_there_are_created_and_those_that_have_ended_are_deleted(tmp_path: Path) -> None:
    ended = {"metadata": {"name": "flood"}, "status": {"conditions": [{"type": "Failed", "status": "True"}], "state": "Failed"}}
    cluster = Cluster({"s-tenant/elasticpytorchjobs/flood": ended})
    await turn_of("wants-1", cluster, tmp_path)
    assert "DELETE s-tenant/elasticpytorchjobs/flood" in cluster.done
    assert "POST s-tenant/elasticpytorchjobs annotated" in cluster.done
    assert "POST s-hanging/elasticpytorchjobs wants-0" in cluster.done


async def test_pods_of_the_annotated_job_get_unreadable_metadata(tmp_path: Path) -> None:
    pods = "s-tenant/pods?labelSelector=elasticpytorch.dev/job-name%3Dannotated"
    cluster = Cluster({pods: {"items": [{"metadata": {"name": "annotated-worker-0"}}]}})
    someone = await turn_of("PATCH s-tenant/pods", cluster, tmp_path)
    assert "POST s-tenant/pods stray-0" in cluster.done
    assert "PATCH s-tenant/pods/annotated-worker-0" in cluster.done
    assert someone.counts()[acts.ANNOTATIONS] == 1


@pytest.mark.parametrize(("message", "count"), [('pods "x" is forbidden: exceeded quota: no-pods', 1), ("", 0)])
async def test_refusals_by_the_quota_are_read_from_the_status(tmp_path: Path, message: str, count: int) -> None:
    jobs = {"items": [{"status": {"conditions": [{"message": message}]}}]}
    someone = a_tenant(Cluster({"s-full/elasticpytorchjobs": jobs}), tmp_path)
    await someone._look_for_refusals(0)
    assert someone.counts()[acts.QUOTA] == count


async def test_the_webhook_goes_before_the_namespaces() -> None:
    gone = {"namespaces?labelSelector=elastic-pytorch-soak%3Dhostile": {"items": [{"metadata": {"name": "s-tenant"}}]}}
    cluster = Cluster(gone)
    await remove_tenants(cluster)  # type: ignore[arg-type]
    assert cluster.done == [
        f"DELETE {tenant.WEBHOOKS.rpartition('/')[2]}?labelSelector=elastic-pytorch-soak%3Dhostile",
        "DELETE s-tenant",
    ]
