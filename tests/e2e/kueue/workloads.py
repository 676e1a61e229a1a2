"""A queue of a real Kueue, and Workloads that tests make and release as the operator does."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import yaml

from tests.e2e.job_under_test import run_kubectl
from tests.waiting import WAIT_SECONDS, until

Condition = dict[str, Any]
EXTRA_PRIORITY = -1_000_000_000
# How long something must not happen: Kueue acts within a fraction of a second.
STILL_SECONDS = 3.0


def apply(*manifests: dict[str, Any]) -> None:
    run_kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests))


@dataclass(frozen=True)
class Workload:
    """A Workload of the namespace, read from the API server at each question."""

    name: str
    namespace: str

    @classmethod
    def all_in(cls, namespace: str) -> list["Workload"]:
        found = run_kubectl(
            "-n", namespace, "get", "workloads.v1beta2.kueue.x-k8s.io", "-o", "name"
        ).stdout.split()
        return [cls(name.partition("/")[2], namespace) for name in found]

    def get(self) -> dict[str, Any]:
        found = run_kubectl(
            "-n", self.namespace, "get", "workloads.v1beta2.kueue.x-k8s.io", self.name, "-o", "json"
        )
        read: dict[str, Any] = json.loads(found.stdout)
        return read

    @property
    def status(self) -> dict[str, Any]:
        return self.get().get("status", {})

    def conditions(self) -> dict[str, Condition]:
        return {condition["type"]: condition for condition in self.status.get("conditions", [])}

    def holds(self, type_: str, reason: str | None = None) -> bool:
        """Whether a condition is True, and for this reason, if one is given."""
        found = self.conditions().get(type_, {})
        return found.get("status") == "True" and reason in {None, found["reason"]}

    def until(self, type_: str, status: str = "True", seconds: float = WAIT_SECONDS) -> Condition:

        def fulfilled() -> bool:
            return self.conditions().get(type_, {}).get("status") == status

        until(
            fulfilled,
            lambda: f"{self.name} to be {type_}={status}:\n{yaml.safe_dump(self.status)}",
            seconds,
        )
        return self.conditions()[type_]

    def remains(self, fulfilled: Callable[["Workload"], bool]) -> bool:
        """Whether something holds for a few seconds."""
        end = time.monotonic() + STILL_SECONDS
        while time.monotonic() < end:
            if not fulfilled(self):
                return False
            time.sleep(0.2)
        return True

    def patch(self, body: dict[str, Any], *, check: bool = True) -> str:
        return self._patch(body, check)

    def patch_status(
        self, status: dict[str, Any], version: str | None = None, *, check: bool = True
    ) -> str:
        body: dict[str, Any] = {"status": status}
        if version is not None:
            body["metadata"] = {"resourceVersion": version}
        return self._patch(body, check, "--subresource=status")

    def _patch(self, body: dict[str, Any], check: bool, *options: str) -> str:
        target = ("-n", self.namespace, "patch", "workloads.v1beta2.kueue.x-k8s.io", self.name)
        return run_kubectl(
            *target, "--type=merge", "-p", json.dumps(body), *options, check=check
        ).stderr

    def set_condition(self, type_: str, status: str, reason: str) -> None:
        found = self.get()
        conditions = {c["type"]: c for c in found["status"]["conditions"]} | {
            type_: condition(type_, status, reason)
        }
        self.patch_status(
            {"conditions": list(conditions.values())}, found["metadata"]["resourceVersion"]
        )

    def release(self) -> None:
        """Gives the quota back after an eviction, in one write."""
        found = self.get()
        self.patch_status(released(found), found["metadata"]["resourceVersion"])

    def delete(self) -> None:
        run_kubectl("-n", self.namespace, "delete", "workloads.v1beta2.kueue.x-k8s.io", self.name)


def condition(type_: str, status: str, reason: str) -> Condition:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": now,
    }


def released(workload: dict[str, Any]) -> dict[str, Any]:
    """The status by which an evicted Workload gives its quota back."""
    conditions = {c["type"]: c for c in workload["status"]["conditions"]}
    reason = conditions["Evicted"]["reason"]
    conditions |= {
        "QuotaReserved": condition("QuotaReserved", "False", "Pending"),
        "Admitted": condition("Admitted", "False", "NoReservation"),
        "PodsReady": condition("PodsReady", "False", "WaitForStart"),
        "Requeued": condition(
            "Requeued", "True" if reason in {"Preempted", "NodeFailures"} else "False", reason
        ),
    }
    return {"admission": None, "conditions": list(conditions.values())}


@dataclass
class Queue:
    """A ClusterQueue with a quota, in units of a worker, and a namespace's LocalQueue of it.

    Attributes:
        others: the workers and the spec of further flavors, by name.
    """

    name: str
    namespace: str
    workers: int
    labels: dict[str, str] = field(default_factory=dict)
    strategy: str = "BestEffortFIFO"
    preemption: str = "LowerPriority"
    local_name: str = "training"
    topology: str = ""
    checks: list[str] = field(default_factory=list)
    others: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)

    def create(self) -> None:
        flavor: dict[str, Any] = {"nodeLabels": self.labels} if self.labels else {}
        if self.topology:
            flavor["topologyName"] = self.topology
        flavors = {self.name: (self.workers, flavor), **self.others}
        quotas = [
            {"name": name, "resources": quota_of(workers)} for name, (workers, _) in flavors.items()
        ]
        group = {"coveredResources": ["cpu", "memory"], "flavors": quotas}
        spec: dict[str, Any] = {
            "namespaceSelector": {},
            "queueingStrategy": self.strategy,
            "preemption": {"withinClusterQueue": self.preemption},
            "resourceGroups": [group],
        }
        if self.checks:
            spec["admissionChecksStrategy"] = {
                "admissionChecks": [{"name": check} for check in self.checks]
            }
        apply(
            *(
                kueue_object("ResourceFlavor", {"name": name}, described)
                for name, (_, described) in flavors.items()
            ),
            kueue_object("ClusterQueue", {"name": self.name}, spec),
            kueue_object(
                "LocalQueue",
                {"name": self.local_name, "namespace": self.namespace},
                {"clusterQueue": self.name},
            ),
        )

    def remove(self) -> None:
        """Removes what is not in the namespace."""
        run_kubectl("delete", "clusterqueues.kueue.x-k8s.io", self.name, "--wait=false")
        run_kubectl(
            "delete", "resourceflavors.kueue.x-k8s.io", self.name, *self.others, "--wait=false"
        )

    def used_workers(self, flavor: str = "") -> int:
        """Of the quota of a flavor, its own one by default, as Kueue counts it."""
        found = json.loads(
            run_kubectl(
                "get", "clusterqueues.v1beta2.kueue.x-k8s.io", self.name, "-o", "json"
            ).stdout
        )
        reserved = next(
            one
            for one in found["status"]["flavorsReservation"]
            if one["name"] == (flavor or self.name)
        )
        total = next(
            resource["total"] for resource in reserved["resources"] if resource["name"] == "cpu"
        )
        return int(total[:-1] if total.endswith("m") else float(total) * 1000) // 100

    def until_used(self, workers: int, flavor: str = "") -> None:
        until(
            lambda: self.used_workers(flavor) == workers,
            lambda: f"{workers} workers of quota in use, not {self.used_workers(flavor)}",
        )

    def workload(
        self,
        name: str,
        owner: dict[str, Any],
        count: int,
        *,
        priority: int = 0,
        min_count: int | None = None,
    ) -> Workload:
        """Creates a Workload of a suspended job, as the operator would."""
        container = {
            "name": "pytorch",
            "image": "none",
            "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}},
        }
        pods: dict[str, Any] = {
            "name": "workers",
            "count": count,
            "template": {"spec": {"containers": [container]}},
        }
        if min_count is not None:
            pods["minCount"] = min_count
        labels = {"kueue.x-k8s.io/job-uid": owner["uid"]}
        metadata = {
            "name": name,
            "namespace": self.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        }
        spec = {"queueName": self.local_name, "priority": priority, "podSets": [pods]}
        apply(kueue_object("Workload", metadata, spec))
        return Workload(name, self.namespace)


def quota_of(workers: int) -> list[dict[str, str]]:
    return [
        {"name": "cpu", "nominalQuota": f"{workers * 100}m"},
        {"name": "memory", "nominalQuota": "100Gi"},
    ]


def kueue_object(
    kind: str, metadata: dict[str, Any], spec: dict[str, Any] | None = None
) -> dict[str, Any]:
    made = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata}
    return made if spec is None else made | {"spec": spec}


def owner_reference(job: dict[str, Any]) -> dict[str, Any]:
    identity = {"name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    return {"apiVersion": job["apiVersion"], "kind": job["kind"], "controller": True, **identity}
