"""Turns a plan's actions into writes to the API server; the cache knows their results at once."""

import itertools
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from elastic_pytorch_operator.api import names, resources
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.times import write_micro_time
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import MAX_QUOTED, Cluster, ClusterError
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.informer.changes import Identity
from elastic_pytorch_operator.manifests.stock_pods import (
    explain_refusal,
    stock_worker_pod,
    store_pod,
)
from elastic_pytorch_operator.manifests.worker_pod import (
    AgentSettings,
    headless_service,
    worker_pod,
)
from elastic_pytorch_operator.manifests.workload import workload_name
from elastic_pytorch_operator.model.actions import (
    Action,
    CreatePod,
    CreateService,
    CreateStore,
    CreateWorkload,
    DeleteJob,
    DeletePod,
    DeletePodGroup,
    DeleteWorkload,
    PatchStatus,
    PatchWorkload,
    PutPodGroup,
    RecordEvent,
    ResizeWorkload,
    TryPod,
    WorkloadAction,
)
from elastic_pytorch_operator.model.status_changes import says_more
from elastic_pytorch_operator.planning.failed_writes import (
    CLAIMS,
    DRY_RUN,
    JOB,
    POD_GROUP,
    PODS,
    SERVICE,
    STATUS,
)
from elastic_pytorch_operator.reconcile.claim_writer import ClaimWriter
from elastic_pytorch_operator.reconcile.existing_objects import check_owner, create_or_find
from elastic_pytorch_operator.reconcile.job_writer import JobWrite, WriteKind
from elastic_pytorch_operator.reconcile.pod_group_writer import PodGroupWriter
from elastic_pytorch_operator.reconcile.template_reader import TemplateReader
from elastic_pytorch_operator.reconcile.workload_writer import WorkloadWriter
from elastic_pytorch_operator.spec.job import Job, JobKey, parse_key

logger = logging.getLogger(__name__)

# As in Kubernetes' generated names: no vowels, nothing that looks alike.
SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5
MAX_NOTE_BYTES = 1024  # the API's bound on an event's note, which counts bytes
DRY_RUN_SECONDS = 60.0  # after a refused one: nothing waits, and many jobs may be suspended


class Executor:
    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        agent: AgentSettings,
        clock: Callable[[], float] = time.monotonic,
        time_of_day: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self.agent = agent
        self._clock = clock
        self._time_of_day = time_of_day
        self._event_numbers = itertools.count()
        self._services: set[str] = set()
        self._claims = ClaimWriter(cluster)
        self._pod_groups = PodGroupWriter(cluster)
        self._workloads = WorkloadWriter(cluster, cache, clock)
        self.templates = TemplateReader(cluster, cache, self._write_whole_status, time_of_day)

    def has_service(self, job_uid: str) -> bool:
        return job_uid in self._services

    def pod_group_minimum(self, job: Job) -> int | None:
        return self._pod_groups.minimum(job)

    def forget_others(self, job_uids: Collection[str]) -> None:
        self._services.intersection_update(job_uids)
        self._pod_groups.forget_others(job_uids)

    def forget_unwatched(self, job_uid: str) -> None:
        self._services.discard(job_uid)
        self._pod_groups.forget(job_uid)

    def forget_claims_and_flavors(self) -> None:
        self._claims.forget()
        self._workloads.forget_flavors()

    def writes(
        self,
        job: Job,
        actions: Sequence[Action],
        on_status: Callable[[], None] = lambda: None,
        on_tried: Callable[[], None] = lambda: None,
    ) -> list[JobWrite]:
        """Without events that wait for the status."""
        follow = {PatchStatus: on_status, TryPod: on_tried}
        found = [
            self._write(job, action, follow.get(type(action), lambda: None))
            for action in actions
            if not (isinstance(action, RecordEvent) and action.with_status)
        ]
        if any(isinstance(action, CreatePod | CreateStore) for action in actions):
            found += [
                JobWrite(WriteKind.CLAIMS, CLAIMS, f"claim {name}", write)
                for name, write in self._claims.missing(job).items()
            ]
        return found

    def _write(self, job: Job, action: Action, on_success: Callable[[], None]) -> JobWrite:
        match action:
            case CreateService():
                send = partial(self._create_service, job)
                return JobWrite(WriteKind.SERVICE, SERVICE, SERVICE, send)
            case PutPodGroup(before_pods, without_pods):
                # No pod waits for a WriteKind.SERVICE.
                kind = WriteKind.POD_GROUP if before_pods else WriteKind.SERVICE
                send = partial(self._pod_groups.put, job, without_pods=without_pods)
                return JobWrite(kind, POD_GROUP, POD_GROUP, send)
            case DeletePodGroup():
                send = partial(self._pod_groups.delete, job)
                return JobWrite(WriteKind.SERVICE, POD_GROUP, f"delete {POD_GROUP}", send)
            case TryPod():
                send = partial(self._try_pod, job, on_success)
                seconds = DRY_RUN_SECONDS
                return JobWrite(WriteKind.DRY_RUN, DRY_RUN, DRY_RUN, send, refused_seconds=seconds)
            case CreatePod():
                creates = (action.index, action.grant.workload) if action.grant else None
                send = partial(self._create_pod, job, action)
                return JobWrite(WriteKind.PODS, PODS, f"pod {action.index}", send, creates=creates)
            case CreateStore():
                send = partial(self._create_pod, job, action)
                return JobWrite(WriteKind.PODS, PODS, "store", send)
            case DeletePod():
                send = partial(self._delete_pod, job, action)
                return JobWrite(WriteKind.DELETES, f"delete {action.name}", action.uid, send)
            case PatchStatus():
                send = partial(self._patch_status, job, action.status, on_success)
                leads_on = says_more(job.status, action.status)
                return JobWrite(WriteKind.STATUS, STATUS, STATUS, send, leads_on=leads_on)
            case DeleteJob():
                return JobWrite(WriteKind.JOB, JOB, JOB, partial(self._delete_job, job))
            case RecordEvent():
                return self.event(job, action)
            case CreateWorkload(number):
                return self._write_workload(job, action, workload_name(job, number))
            case PatchWorkload(name):
                return self._write_workload(job, action, name)
            case DeleteWorkload(name):
                return self._write_workload(job, action, name, (name, 0))
            case ResizeWorkload(name, _, count):
                return self._write_workload(job, action, name, (name, count))

    def _write_workload(
        self, job: Job, action: WorkloadAction, name: str, keeps: tuple[str, int] | None = None
    ) -> JobWrite:
        key, send = f"workload {name}", partial(self._workloads.write, job, action)
        return JobWrite(WriteKind.WORKLOADS, key, key, send, keeps=keeps)

    def event(self, job: Job, action: RecordEvent) -> JobWrite:
        # Two events of one microsecond have different names.
        microseconds = round(self._time_of_day().timestamp() * 1e6)
        nanoseconds = microseconds * 1000 + next(self._event_numbers) % 1000
        id_ = f"event {nanoseconds} {action.reason}"
        send = partial(self._send_event, job, action, nanoseconds)
        return JobWrite(WriteKind.EVENTS, f"event {action.reason}", id_, send)

    async def _create_service(self, job: Job) -> None:
        found = await create_or_find(self._cluster, resources.SERVICES, headless_service(job))
        if found is not None:
            problem = f"Service {job.key.name} exists and is not owned by this job, so its workers"
            remedy = "delete that Service, or create the job under another name"
            check_owner(job, found, f"{problem} cannot be resolved by name: {remedy}")
        self._services.add(job.uid)

    async def _try_pod(self, job: Job, on_success: Callable[[], None]) -> None:
        await self._claims.try_all(job)
        await self._pod_groups.put(job, dry_run=True)
        pod = CreatePod(0, rendezvous=1 if job.stock else 0)
        await self._send_pod(job, pod, strict=True, dry_run=True)
        on_success()

    async def _create_pod(self, job: Job, action: CreatePod | CreateStore) -> None:
        # A job that has begun goes on with its template, even with fields that were dropped then.
        strict = not job.status.get("round")
        pod = await self._send_pod(job, action, strict=strict)
        self._cache.note_written("Pod", pod, self._clock())
        logger.info("created pod", extra={"job": str(job.key), "pod": pod["metadata"]["name"]})

    async def _send_pod(
        self, job: Job, action: CreatePod | CreateStore, *, strict: bool, dry_run: bool = False
    ) -> Manifest:
        suffix = "".join(random.choices(SUFFIX_ALPHABET, k=SUFFIX_LENGTH))
        if isinstance(action, CreateStore):
            manifest = store_pod(job, suffix, action.rendezvous)
        elif job.stock:
            manifest = stock_worker_pod(job, action, suffix)
        else:
            manifest = worker_pod(job, action, suffix, self.agent)
        if isinstance(action, CreatePod) and action.grant is not None:
            await self._workloads.place(manifest, action.grant)
        try:
            create = self._cluster.create
            pod = await create(resources.PODS, manifest, strict=strict, dry_run=dry_run)
            if rewritten := find_rewritten(manifest, pod):
                if not dry_run:
                    where, found = job.key.namespace, pod["metadata"]
                    await self._cluster.delete(resources.PODS, where, found["name"], found["uid"])
                raise ClusterError(422, rewritten, judgement=Judgement.REFUSED)
            return pod
        except ClusterError as error:
            # The suffix differs each time, and would make each message a new one.
            message = str(error).replace(f"-{suffix}", "")
            error.args = (explain_refusal(message) if isinstance(action, CreateStore) else message,)
            raise

    async def _delete_pod(self, job: Job, action: DeletePod) -> None:
        namespace, name, uid = job.key.namespace, action.name, action.uid
        grace = 0 if action.force else None
        pod = await self._cluster.delete(resources.PODS, namespace, name, uid, grace_seconds=grace)
        if pod is None:
            self._cache.remove("Pod", Identity(namespace, name, uid), self._clock())
        elif pod.get("kind") == "Pod":
            self._cache.apply("Pod", pod, self._clock())
        logger.info("deleted pod", extra={"job": str(job.key), "pod": name, "why": action.why})

    async def _delete_job(self, job: Job) -> None:
        await self._cluster.delete(resources.JOBS, job.key.namespace, job.key.name, job.uid)
        self._cache.remove(names.KIND, Identity(*job.key, job.uid), self._clock())
        logger.info("deleted job", extra={"job": str(job.key), "why": "its time to live is over"})

    async def _patch_status(
        self, job: Job, status: Mapping[str, Any], on_success: Callable[[], None]
    ) -> None:
        # If the job has changed meanwhile, the API server refuses this, and a new plan follows.
        await self._write_status(job.key, job.uid, merge_patch(job.status, status), job.version)
        on_success()

    async def _write_whole_status(self, manifest: Manifest, status: dict[str, Any]) -> None:
        metadata, patch = manifest["metadata"], merge_patch(manifest.get("status") or {}, status)
        version = metadata.get("resourceVersion", "")
        await self._write_status(parse_key(manifest), metadata["uid"], patch, version)

    async def _write_status(
        self, key: JobKey, uid: str, status: Mapping[str, Any], version: str
    ) -> None:
        try:
            manifest = await self._cluster.patch(
                resources.JOBS, key.namespace, key.name, version, {"status": status}, "status"
            )
        except ClusterError as error:
            if error.code != 404:
                raise
            self._cache.remove(names.KIND, Identity(*key, uid), self._clock())
            return
        self._cache.note_written(names.KIND, manifest, self._clock())

    async def _send_event(
        self, job: Job, action: RecordEvent, nanoseconds: int, count: int
    ) -> None:
        now = datetime.fromtimestamp(nanoseconds / 1e9, UTC)
        # Named by its time, as by client-go: `kubectl describe` lists events by their names.
        name, namespace = f"{job.key.name}.{nanoseconds:016x}", job.key.namespace
        metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        if action.annotations:
            metadata["annotations"] = {
                name: value.encode(errors="replace").decode()
                for name, value in action.annotations.items()
            }
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": metadata,
            "eventTime": write_micro_time(now),
            "reportingController": f"{names.GROUP}/operator",
            "reportingInstance": names.OPERATOR,
            "action": "Reconcile",
            "reason": action.reason,
            "note": action.note.encode(errors="replace")[:MAX_NOTE_BYTES].decode(errors="ignore"),
            "type": "Warning" if action.warning else "Normal",
            "regarding": {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "namespace": job.key.namespace,
                "name": job.key.name,
                "uid": job.uid,
            },
        }
        if count > 1:
            event["series"] = {"count": count, "lastObservedTime": event["eventTime"]}
        await self._cluster.create(resources.EVENTS, event)


def find_rewritten(sent: Manifest, stored: Manifest) -> str:
    """Names a label or annotation of the operator's that admission has changed; empty: none."""
    for part, kind in (("labels", "label"), ("annotations", "annotation")):
        found = stored["metadata"].get(part) or {}
        for name, value in (sent["metadata"].get(part) or {}).items():
            if name.startswith(f"{names.GROUP}/") and found.get(name) != value:
                changed = str(found.get(name))[:MAX_QUOTED]
                change = f"sets to {changed!r}" if name in found else "removes"
                return (
                    f"a policy or webhook {change} the {kind} {name} of the job's pods, "
                    "by which the operator finds them, so each is deleted at once: "
                    "exempt these pods from it"
                )
    return ""


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) from one object to another."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if name not in old or before != value:
            patch[name] = (
                merge_patch(before, value)
                if isinstance(value, Mapping) and isinstance(before, Mapping)
                else value
            )
    return patch
