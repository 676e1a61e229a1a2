"""Reads the templates of jobs, and looks again for missing ones and those that make no valid job.

The job owns a ControllerRevision with what it has of its template, so that it goes on under each
leader.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import (
    MAX_MESSAGE,
    Condition,
    find_condition,
    is_true,
    merge_conditions,
)
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import REVISIONS, TEMPLATES
from elastic_pytorch_operator.api.times import write_time
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import template_revision
from elastic_pytorch_operator.reconcile.job_writer import JobWrite, WriteKind
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import parse_job, parse_key
from elastic_pytorch_operator.spec.platform.job_template import (
    FIELD,
    TemplateUnread,
    resumes,
    titled,
    usable_spec,
)

MISSING_SECONDS = 30.0  # between two tries to read a template that no job can use yet
WriteStatus = Callable[[Manifest, dict[str, Any]], Awaitable[None]]


class TemplateReader:
    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        write_status: WriteStatus,
        time_of_day: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._write_status = write_status
        self._time_of_day = time_of_day

    def read(self, manifest: Manifest, unread: TemplateUnread) -> JobWrite | None:
        """None: another controller manages the job, or it is being deleted."""
        manager = manifest["spec"].get("managedBy") or names.MANAGER
        if manifest["metadata"].get("deletionTimestamp") or manager != names.MANAGER:
            return None
        # The failures of another template say nothing of this one.
        key = f"template {unread.name} {unread.template_uid}"
        send = partial(self._read, manifest, unread)
        return JobWrite(WriteKind.TEMPLATE, key, key, send, refused_seconds=MISSING_SECONDS)

    async def _read(self, manifest: Manifest, unread: TemplateUnread) -> None:
        if not self._waits(manifest):
            return  # it has been read for another job
        title, uid = titled(unread.name), unread.template_uid
        try:
            if uid is None:
                await self._take(manifest, await self._cluster.get(TEMPLATES, "", unread.name))
            else:
                name = revision_name(manifest["metadata"], uid)
                revision = await self._cluster.get(REVISIONS, parse_key(manifest).namespace, name)
                kept = {"metadata": {"name": unread.name}, "spec": revision.get("data")}
                self._cache.note_template(uid, usable_spec(kept))
            return
        except ClusterError as error:
            if error.code != 404 and error.judgement is Judgement.TROUBLE:
                raise
            message = f"{title} cannot be read, and is looked for again: {error}"
        except InvalidJob as problem:
            message = f"{title} makes no valid job, and is looked for again: {problem}"
        if self._waits(manifest):
            await self._report(manifest, message)

    def _waits(self, manifest: Manifest) -> bool:
        return isinstance(self._cache.job(parse_key(manifest)), TemplateUnread)

    async def _take(self, manifest: Manifest, template: Manifest) -> None:
        name, uid = template["metadata"]["name"], template["metadata"]["uid"]
        spec = usable_spec(template)
        # Without it, this generation counts as new, so that the API server is asked about the pods
        # of another template.
        status = {**manifest["status"], FIELD: {"name": name, "uid": uid}}
        status.pop("observedGeneration", None)
        if resumes(manifest):
            resumed = f"the job resumes with {titled(name)} as it is now"
            condition = Condition(names.SUSPENDED, True, names.JOB_RESUMED, resumed)
            status["conditions"] = self._with(manifest, condition)
        job = parse_job({**manifest, "status": status}, self._cache.defaults, {uid: spec})
        try:
            revision = template_revision(job, revision_name(manifest["metadata"], uid), spec)
            await self._cluster.create(REVISIONS, revision)
        except ClusterError as error:
            if error.code != 409:  # a write of the status has failed since
                raise
        self._cache.note_template(uid, spec)
        await self._write_status(manifest, status)

    async def _report(self, manifest: Manifest, message: str) -> None:
        """Always raises ClusterError, so that the template, once repaired, is read again."""
        status, suspend = manifest["status"], manifest["spec"].get("suspend") is True
        generation, runs = manifest["metadata"].get("generation", 1), is_true(status, names.RUNNING)
        type_ = names.DEGRADED if runs else names.RUNNING
        missing = Condition(type_, runs, names.TEMPLATE_MISSING, message)
        known = find_condition(status, type_)
        written = (status.get("observedGeneration"), known.get("reason"), known.get("message"))
        if written != (generation, names.TEMPLATE_MISSING, message[:MAX_MESSAGE]):
            conditions = [missing]
            if suspend and not status.get("round") and not is_true(status, names.SUSPENDED):
                words = "spec.suspend is true: nothing runs"
                conditions.append(Condition(names.SUSPENDED, True, names.JOB_SUSPENDED, words))
            state = status["state"] if runs else names.SUSPENDED if suspend else "Pending"
            changes = {"state": state, "observedGeneration": generation}
            changes["conditions"] = self._with(manifest, *conditions)
            await self._write_status(manifest, {**status, **changes})
        raise ClusterError(404, message, judgement=Judgement.REFUSED)

    def _with(self, manifest: Manifest, *conditions: Condition) -> list[dict[str, Any]]:
        status, time = manifest["status"], write_time(self._time_of_day())
        types = {condition.type for condition in conditions}
        others = [c for c in status.get("conditions") or () if c.get("type") not in types]
        generation = manifest["metadata"].get("generation", 1)
        return [*others, *merge_conditions(status, conditions, generation=generation, time=time)]


def revision_name(job: Manifest, template_uid: str) -> str:
    return f"{job['name']}-{job['uid']}-{template_uid}"
