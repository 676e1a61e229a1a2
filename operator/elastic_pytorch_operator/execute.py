"""Carries out what a plan asks for. The only writer to the cluster; what it writes, the store knows at once."""

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from elastic_pytorch_operator import names
from elastic_pytorch_operator.actions import (
    Action,
    CreatePod,
    CreateService,
    CreateStore,
    DeleteJob,
    DeletePod,
    PatchStatus,
    RecordEvent,
)
from elastic_pytorch_operator.cluster import Cluster, ClusterError
from elastic_pytorch_operator.conditions import has_ended
from elastic_pytorch_operator.injection import AgentImage
from elastic_pytorch_operator.job import InvalidJob, Job
from elastic_pytorch_operator.manifests import headless_service, worker_pod
from elastic_pytorch_operator.stock_manifests import stock_worker_pod, store_pod
from elastic_pytorch_operator.store import Store

logger = logging.getLogger(__name__)

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes' own generated names: no vowels, nothing that looks alike
SUFFIX_LENGTH = 5
MOST_PARALLEL_CREATES = 50
MOST_NOTE = 1024  # the API's bound on an event's note


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan's actions.

    Attributes:
        refusal: why the API server has refused to create a pod, if it has.
        invalid: why it never will.
        wrote_status: whether the status was written.
        conflict: the job's Service could not be made: a stranger has its name.
    """

    refusal: str = ""
    invalid: str = ""
    wrote_status: bool = False
    conflict: bool = False


class Executor:
    """Does what plans ask for.

    Attributes:
        authorities: which vouch for the operator, PEM; the agents of the pods that it makes are given them.
    """

    def __init__(self, cluster: Cluster, store: Store, operator_url: str, agent_image: AgentImage | None = None) -> None:
        self._cluster = cluster
        self._store = store
        self.authorities = ""
        self._operator_url = operator_url
        self._agent_image = agent_image
        self._services: set[str] = set()
        self._recording: set[asyncio.Task[None]] = set()

    def has_service(self, job_uid: str) -> bool:
        """Whether the job's Service is known to be there."""
        return job_uid in self._services

    def forget_services(self) -> None:
        """Has every job's Service looked for again."""
        self._services.clear()

    async def execute(self, job: Job, actions: Sequence[Action]) -> Outcome:
        """Carries out a job's actions: creates in parallel, then the others in order.

        Raises:
            ClusterError: the API server could not be asked, or failed; what was not done is asked for again by the next plan.
        """
        conflict, no_service = False, ""
        if any(isinstance(action, CreateService) for action in actions):
            conflict, no_service = await self._create_service(job)
        refusal, invalid = await self._create_pods(job, [a for a in actions if isinstance(a, CreatePod | CreateStore)])
        wrote = False
        for action in actions:
            match action:
                case DeletePod():
                    await self._delete_pod(job, action)
                case PatchStatus():
                    wrote = await self._patch_status(job, action.status)
                case RecordEvent():
                    self._record(job, action)
                case DeleteJob():
                    await self._cluster.delete_job(job.key.namespace, job.key.name, job.uid)
                    logger.info("deleted job", extra={"job": str(job.key), "why": "its time to live is over"})
        return Outcome(refusal or no_service, invalid, wrote, conflict)

    async def report_invalid(self, manifest: Mapping[str, Any], problem: InvalidJob) -> None:
        """Says in the status of a job that cannot be read what is wrong with it.

        A job that has begun goes on as it is, and may be put right; one that has ended stays as it has ended.
        """
        metadata, known_status = manifest["metadata"], manifest.get("status") or {}
        managed_by = (manifest.get("spec") or {}).get("managedBy")
        if managed_by not in (None, "", names.MANAGER) or has_ended(known_status):
            return
        began = bool(known_status.get("round"))
        condition = {
            "type": names.DEGRADED if began else names.FAILED,
            "status": "True",
            "reason": names.INVALID_SPEC,
            "message": str(problem),
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "observedGeneration": metadata.get("generation", 1),
        }
        known = known_status.get("conditions") or []
        if any(c.get("message") == condition["message"] for c in known if c.get("type") == condition["type"]):
            return
        others = [c for c in known if c.get("type") != condition["type"]] if began else []
        status = {"conditions": [*others, condition], "observedGeneration": metadata.get("generation", 1)}
        if not began:
            status["state"] = names.FAILED
        await self._write_status(metadata["namespace"], metadata["name"], status, metadata.get("resourceVersion", ""))

    async def _create_service(self, job: Job) -> tuple[bool, str]:
        """Whether another's Service is in the way, and why the API server refuses to make one. Training does not wait for it."""
        try:
            await self._cluster.create_service(headless_service(job))
        except ClusterError as error:
            # A quota that is used up is looked at first: the Service may well be there.
            if error.code != 409 and not error.forbidden:
                raise
            try:
                service = await self._cluster.get_service(job.key.namespace, job.key.name)
            except ClusterError as absent:
                if absent.code != 404:
                    raise
                return False, str(error) if error.forbidden else ""
            owners = service["metadata"].get("ownerReferences") or ()
            if not any(owner.get("uid") == job.uid for owner in owners):
                # A job of the same name may just have been deleted; its Service goes soon.
                logger.warning("service of the job's name belongs to somebody else", extra={"job": str(job.key)})
                return True, ""
        self._services.add(job.uid)
        return False, ""

    async def _create_pods(self, job: Job, creates: Sequence[CreatePod | CreateStore]) -> tuple[str, str]:
        if not creates:
            return "", ""
        # The first one alone: what is refused once is not asked for a hundred times.
        error = await self._create_pod(job, creates[0])
        if error is None:
            gate = asyncio.Semaphore(MOST_PARALLEL_CREATES)

            async def create(action: CreatePod | CreateStore) -> ClusterError | None:
                async with gate:
                    return await self._create_pod(job, action)

            errors = await asyncio.gather(*(create(action) for action in creates[1:]))
            error = next((e for e in errors if e is not None), None)
        if error is None:
            return "", ""
        return ("", str(error)) if error.invalid else (str(error), "")

    async def _create_pod(self, job: Job, action: CreatePod | CreateStore) -> ClusterError | None:
        suffix = "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(SUFFIX_LENGTH))
        if isinstance(action, CreateStore):
            manifest = store_pod(job, suffix, action.rendezvous)
        elif job.stock:
            manifest = stock_worker_pod(job, action.index, suffix, action.rendezvous, action.failed_starts)
        else:
            manifest = worker_pod(
                job,
                action.index,
                suffix,
                self._operator_url,
                action.avoid,
                self._agent_image,
                self.authorities,
                failed_starts=action.failed_starts,
                strictly=action.strictly,
            )
        try:
            pod = await self._cluster.create_pod(manifest)
        except ClusterError as error:
            if error.invalid or error.forbidden:
                return error
            raise
        self._store.apply_pod(pod, time.monotonic())
        self._store.hearing.expect("pods", pod, time.monotonic())
        logger.info("created pod", extra={"job": str(job.key), "pod": pod["metadata"]["name"]})
        return None

    async def _delete_pod(self, job: Job, action: DeletePod) -> None:
        grace = 0 if action.force else None
        pod = await self._cluster.delete_pod(job.key.namespace, action.name, action.uid, grace_seconds=grace)
        if pod is None:
            self._store.remove_pod({"metadata": {"namespace": job.key.namespace, "name": action.name, "uid": action.uid}})
        elif pod.get("kind") == "Pod":
            self._store.apply_pod(pod, time.monotonic())
        logger.info("deleted pod", extra={"job": str(job.key), "pod": action.name, "why": action.why})

    async def _patch_status(self, job: Job, status: Mapping[str, Any]) -> bool:
        return await self._write_status(job.key.namespace, job.key.name, merge_patch(job.status, status), job.version)

    async def _write_status(self, namespace: str, name: str, status: Mapping[str, Any], version: str) -> bool:
        try:
            manifest = await self._cluster.patch_job_status(namespace, name, status, version)
        except ClusterError as error:
            if error.code == 404:  # deleted meanwhile
                return False
            raise
        self._store.apply_job(manifest, time.monotonic())
        self._store.hearing.expect("jobs", manifest, time.monotonic())
        return True

    def _record(self, job: Job, action: RecordEvent) -> None:
        """Sends an event beside the work: the story must not hold up what it tells of."""
        task = asyncio.ensure_future(self._send_event(job, action, time.time_ns()))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)

    async def _send_event(self, job: Job, action: RecordEvent, nanoseconds: int) -> None:
        now = datetime.fromtimestamp(nanoseconds / 1e9, UTC)
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            # Named by its time, as client-go does: `kubectl describe` shows a job's events in the order of their names.
            "metadata": {"name": f"{job.key.name}.{nanoseconds:016x}", "namespace": job.key.namespace},
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": f"{names.GROUP}/operator",
            "reportingInstance": names.OPERATOR,
            "action": "Reconcile",
            "reason": action.reason,
            "note": action.note[:MOST_NOTE],
            "type": "Warning" if action.warning else "Normal",
            "regarding": {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "namespace": job.key.namespace,
                "name": job.key.name,
                "uid": job.uid,
            },
        }
        try:
            await self._cluster.create_event(event)
        except ClusterError as error:
            logger.warning("cannot record an event: %s", error, extra={"job": str(job.key), "reason": action.reason})


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that makes one object of another: what is no longer there is sent as null."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        patch[name] = merge_patch(before, value) if isinstance(value, Mapping) and isinstance(before, Mapping) else value
    return patch
