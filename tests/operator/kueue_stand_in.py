"""Kueue's part on the cluster in memory: what it changes, refuses and chooses.

The rules are those of Kueue 0.19: pkg/webhooks/workload_webhook.go and the CRD (what is refused),
pkg/scheduler (order, preemption) and pkg/controller/core (activation, requeuing). One ClusterQueue
with quota of one flavor for a number of pods; BestEffortFIFO; LowerPriority.
"""

import asyncio
import copy
import itertools
from collections.abc import Mapping
from typing import Any

from elastic_pytorch_local.cluster.object_store import apply_patch
from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest
from elastic_pytorch_operator.api.resources import WORKLOADS, Resource
from elastic_pytorch_operator.cluster.interface import Change, ClusterError

from tests.operator.counted_cluster import CountedCluster

FLAVOR = "default-flavor"
NODE_LABELS = {"pool": "shared"}
TIME = "2026-01-01T00:00:00Z"
EVICTION_SECONDS = 0.02  # between two writes of one preemption
ORPHANS = "OwnerNotFound"


class KueueCluster(CountedCluster):
    """A cluster with Kueue.

    Args:
        quota: in pods.
        queues: the LocalQueues of each namespace.

    Attributes:
        log: what Kueue has done, such as `admitted lm-base`.
        most_used: the largest number of pods that have had quota at the same time.
    """

    def __init__(self, quota: int, queues: tuple[str, ...] = ("team",), **options: Any) -> None:
        super().__init__(**options)
        self.quota = quota
        self.queues = queues
        self.log: list[str] = []
        self.most_used = 0
        self._order = itertools.count()
        self._created: dict[str, int] = {}  # by UID
        self._reserved: dict[str, int] = {}
        self._preemptor = ""  # the UID of the Workload that waits for those that it preempts
        self._put(
            "ResourceFlavor",
            "",
            {"metadata": {"name": FLAVOR}, "spec": {"nodeLabels": NODE_LABELS}},
        )

    def add_priority_class(self, name: str, value: int) -> None:
        self._put("WorkloadPriorityClass", "", {"metadata": {"name": name}, "value": value})

    def workload(self, name: str) -> MutableManifest:
        return copy.deepcopy(self._get(kueue.WORKLOAD, "default", name))

    @property
    def workloads(self) -> dict[str, MutableManifest]:
        return {
            found["metadata"]["name"]: found
            for (kind, _, _), found in self._objects.items()
            if kind == kueue.WORKLOAD
        }

    @property
    def used(self) -> int:
        return sum(map(count_of, filter(holds_quota, self.workloads.values())))

    def label_job(self, name: str, labels: Mapping[str, str]) -> None:
        """Gives a job these labels in place of those that it has."""
        job = self._get(names.KIND, "default", name)
        job["metadata"]["labels"] = dict(labels)
        self._changed(names.KIND, "MODIFIED", job)

    def evict(self, name: str, reason: str, message: str) -> None:
        """Asks for a Workload's quota back. It stays taken until the operator has released it."""
        workload = self._get(kueue.WORKLOAD, "default", name)
        self.log.append(f"evicted {name}")
        self._write(
            workload,
            {
                kueue.EVICTED: ("True", reason, message),
                kueue.PREEMPTED: ("True", "InClusterQueue", message),
            },
        )

    async def create(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        if resource is not WORKLOADS:
            return await super().create(resource, manifest, strict=strict, dry_run=dry_run)
        _check_created(manifest)
        created = await super().create(resource, {**manifest, "status": {}})
        self._created[created["metadata"]["uid"]] = next(self._order)
        return created

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        version: str,
        change: Change,
        subresource: str = "",
    ) -> Manifest:
        found = self._objects.get((resource.kind, namespace, name))
        if resource is WORKLOADS and found and found["metadata"]["resourceVersion"] == version:
            _check_changed(found, {**found, **apply_patch(found, change)})
        return await super().patch(resource, namespace, name, version, change, subresource)

    def schedule_workloads(self) -> None:
        """One cycle: evicts what was deactivated, and admits heads while one fits."""
        for workload in list(self.workloads.values()):
            if workload["spec"].get("active") is False and not _is(workload, kueue.EVICTED):
                self._write(
                    workload,
                    {kueue.EVICTED: ("True", kueue.DEACTIVATED, "The workload is deactivated")},
                )
        for workload in sorted(filter(self._waits, list(self.workloads.values())), key=self._place):
            self._try(workload)
            self.most_used = max(self.most_used, self.used)
            if self._preemptor == workload["metadata"]["uid"]:
                # Nothing else of the ClusterQueue is looked at while it waits for its victims.
                return

    def _waits(self, workload: Manifest) -> bool:
        if (
            workload["spec"].get("active") is False
            or _is(workload, kueue.FINISHED)
            or _is(workload, kueue.QUOTA_RESERVED)
        ):
            return False
        requeued = _condition(workload, kueue.REQUEUED)
        return requeued.get("status") != "False"

    def _place(self, workload: Manifest) -> tuple[bool, int, int]:
        uid = workload["metadata"]["uid"]
        return uid != self._preemptor, -workload["spec"]["priority"], self._created[uid]

    def _try(self, workload: MutableManifest) -> None:
        if workload["spec"]["queueName"] not in self.queues:
            message = f"LocalQueue {workload['spec']['queueName']} doesn't exist"
            self._write(workload, {kueue.QUOTA_RESERVED: ("False", "Inadmissible", message)})
            return
        if not self._fits(workload):
            said = (
                "couldn't assign flavors to pod set main: "
                "no flavor matches its node affinity and its tolerations"
            )
            self._write(workload, {kueue.QUOTA_RESERVED: ("False", kueue.PENDING, said)})
            return
        missing = count_of(workload) - (self.quota - self.used)
        if missing <= 0:
            self._admit(workload)
            return
        victims = self._choose_victims(workload, missing)
        by = (
            f"Preempted to accommodate a workload (UID: {workload['metadata']['uid']}) "
            "due to prioritization in the ClusterQueue"
        )
        for number, victim in enumerate(victims):
            if not _is(victim, kueue.EVICTED):
                # Each by a write of its own.
                delay_seconds = number * EVICTION_SECONDS
                asyncio.get_running_loop().call_later(
                    delay_seconds, self.evict, victim["metadata"]["name"], kueue.PREEMPTED, by
                )
        self._preemptor = workload["metadata"]["uid"] if victims else ""
        said = (
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in "
            f"flavor {FLAVOR}, {missing} more needed"
        )
        if victims:
            said = f"{said}. Pending the preemption of {len(victims)} workload(s)"
        self._write(workload, {kueue.QUOTA_RESERVED: ("False", kueue.PENDING, said)})

    def _fits(self, workload: Manifest) -> bool:
        """Of a pod's node selector only a flavor's labels count (pkg/scheduler/flavorassigner)."""
        (pods,) = workload["spec"]["podSets"]
        wanted = pods["template"]["spec"].get("nodeSelector") or {}
        return all(wanted.get(key, value) == value for key, value in NODE_LABELS.items())

    def _admit(self, workload: MutableManifest) -> None:
        name, uid = workload["metadata"]["name"], workload["metadata"]["uid"]
        assignment = {
            "name": kueue.POD_SET,
            "count": count_of(workload),
            "flavors": {"cpu": FLAVOR},
        }
        self._preemptor = "" if self._preemptor == uid else self._preemptor
        self._reserved[uid] = next(self._order)
        self.log.append(f"admitted {name}")
        workload["status"]["admission"] = {
            "clusterQueue": "shared",
            "podSetAssignments": [assignment],
        }
        admitted = {
            kueue.QUOTA_RESERVED: (
                "True",
                kueue.QUOTA_RESERVED,
                "Quota reserved in ClusterQueue shared",
            )
        }
        admitted[kueue.ADMITTED] = ("True", kueue.ADMITTED, "The workload is admitted")
        for type_ in (kueue.EVICTED, kueue.PREEMPTED):
            if _condition(workload, type_):
                admitted[type_] = ("False", kueue.QUOTA_RESERVED, "Previously: evicted")
        self._write(workload, admitted)

    def _choose_victims(self, workload: Manifest, missing: int) -> list[MutableManifest]:
        """As few as suffice: evicted ones first, then lower priority, then later ones."""
        holders = [w for w in self.workloads.values() if holds_quota(w)]
        lower = [w for w in holders if w["spec"]["priority"] < workload["spec"]["priority"]]
        evicted = [w for w in holders if _is(w, kueue.EVICTED) and w not in lower]
        ranked = sorted(
            [*evicted, *lower],
            key=lambda w: (
                not _is(w, kueue.EVICTED),
                w["spec"]["priority"],
                -self._reserved[w["metadata"]["uid"]],
            ),
        )
        chosen: list[MutableManifest] = []
        for victim in ranked:
            if sum(map(count_of, chosen)) < missing:
                chosen.append(victim)
        if sum(map(count_of, chosen)) < missing:
            return []
        for victim in chosen[::-1]:
            if sum(map(count_of, chosen)) - count_of(victim) >= missing:
                chosen.remove(victim)
        return chosen

    def _write(
        self, workload: MutableManifest, conditions: Mapping[str, tuple[str, str, str]]
    ) -> None:
        known = {c["type"]: c for c in workload["status"].get("conditions") or ()}
        before = copy.deepcopy(known)
        for type_, (status, reason, message) in conditions.items():
            changed = {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": TIME,
            }
            known[type_] = changed
        workload["status"]["conditions"] = list(known.values())
        if known != before:
            self._changed(kueue.WORKLOAD, "MODIFIED", workload)


def _condition(workload: Manifest, type_: str) -> Manifest:
    found = (
        c for c in (workload.get("status") or {}).get("conditions") or () if c["type"] == type_
    )
    return next(found, {})


def _is(workload: Manifest, type_: str) -> bool:
    return _condition(workload, type_).get("status") == "True"


def count_of(workload: Manifest) -> int:
    (pods,) = workload["spec"]["podSets"]
    assigned = ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or [
        {}
    ]
    return int(min(pods["count"], assigned[0].get("count", pods["count"])))


def holds_quota(workload: Manifest) -> bool:
    """Whether a Workload's quota is taken.

    A deactivated one frees it at once, an evicted one does not.
    """
    reserved = _is(workload, kueue.QUOTA_RESERVED) and bool(workload["status"].get("admission"))
    return (
        reserved
        and workload["spec"].get("active") is not False
        and not _is(workload, kueue.FINISHED)
    )


def _deny(why: str) -> ClusterError:
    return ClusterError(403, f'admission webhook "vworkload.kb.io" denied the request: {why}')


def _check_created(workload: Manifest) -> None:
    metadata, spec = workload["metadata"], workload["spec"]
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    if metadata["labels"].get(kueue.LABEL_JOB_UID) and not owners:
        raise _deny(f"{ORPHANS}: the label job-uid without an owner")
    if "priority" not in spec:
        raise _deny("priority should not be nil when priorityClassRef is set")
    if not 1 <= len(spec["podSets"]) <= 18 or any(pods["count"] < 0 for pods in spec["podSets"]):
        raise _deny("podSets: between 1 and 18, of no negative count")
    for pods in spec["podSets"]:
        for container in pods["template"]["spec"]["containers"]:
            if "pods" in ((container.get("resources") or {}).get("requests") or {}):
                raise _deny("the key is reserved for internal kueue use")


def _check_changed(before: Manifest, after: Manifest) -> None:
    old, new = before.get("status") or {}, after.get("status") or {}
    for condition in new.get("conditions") or ():
        if not (
            condition.get("reason")
            and condition.get("lastTransitionTime")
            and "message" in condition
        ):
            raise _deny(f"status.conditions: {condition} lacks a field")
    if _is(after, kueue.QUOTA_RESERVED) and not new.get("admission"):
        raise _deny("status.admission: must be set while the QuotaReserved condition is true")
    if old.get("admission") and new.get("admission") and old["admission"] != new["admission"]:
        raise _deny("status.admission: field is immutable")
    theirs = ("admissionChecks", "requeueState", "clusterName", "schedulingStats")
    if any(old.get(name) != new.get(name) for name in theirs):
        raise _deny("this part of the status is Kueue's")
    if _is(before, kueue.QUOTA_RESERVED):
        if before["spec"]["queueName"] != after["spec"]["queueName"]:
            raise _deny("queueName is immutable while workload quota reserved")
        for was, now in zip(before["spec"]["podSets"], after["spec"]["podSets"], strict=True):
            if {**was, "count": 0} != {**now, "count": 0} or now["count"] > was["count"]:
                raise _deny(
                    "spec.podSets: field is immutable while quota is reserved, "
                    "but for a lower count"
                )
    missing = {c["type"] for c in old.get("conditions") or ()} - {
        c["type"] for c in new.get("conditions") or ()
    }
    if missing:
        raise _deny(f"a merge patch replaces the whole list: it has lost {sorted(missing)}")
