"""Reads the templates of jobs. One that is missing, or with which a job would not be valid, is asked for again."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import MAX_MESSAGE, Condition, find_condition, is_true, merge_conditions
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import TEMPLATES
from elastic_pytorch_operator.api.times import write_time
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.reconcile.job_writer import JobWrite, WriteKind
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import parse_job, parse_key
from elastic_pytorch_operator.spec.platform.job_template import FIELD, TemplateUnread, resumes, titled, usable_spec

MISSING_SECONDS = 30.0  # between two looks for a template that no job can use yet
GONE = (
    "{} is gone, or was made again, since the job began with it: its pods train on, but no decision is made about the job and "
    "no pod is created. Suspend and resume the job to have it take the template that has the name then"
)
WriteStatus = Callable[[Manifest, dict[str, Any]], Awaitable[None]]


class TemplateReader:
    """Reads the template of a job when the job is new or resumes, and once for each leader."""

    def __init__(self, cluster: Cluster, cache: Cache, write_status: WriteStatus, time_of_day: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._cache = cache
        self._write_status = write_status
        self._time_of_day = time_of_day

    def read(self, manifest: Manifest, unread: TemplateUnread) -> JobWrite | None:
        """The write that has the template of a job read; None: the job is another controller's, or is being deleted."""
        if manifest["metadata"].get("deletionTimestamp") or manifest["spec"].get("managedBy") not in (None, "", names.MANAGER):
            return None
        # Of another template, no failure is known.
        key = f"template {unread.name} {unread.template_uid}"
        return JobWrite(WriteKind.TEMPLATE, key, key, partial(self._read, manifest, unread), refused_seconds=MISSING_SECONDS)

    async def _read(self, manifest: Manifest, unread: TemplateUnread) -> None:
        if not self._waits(manifest):
            return  # it has been read for another job
        title, uid = titled(unread.name), unread.template_uid
        message = GONE.format(title)
        try:
            found = await self._cluster.get(TEMPLATES, "", unread.name)
            if uid is None:
                await self._take(manifest, found)
                return
            self._cache.note_template(uid, usable_spec(found) if found["metadata"]["uid"] == uid else None)
        except ClusterError as error:
            if error.code == 404 and uid is not None:
                self._cache.note_template(uid, None)
            elif error.code != 404 and error.judgement is Judgement.TROUBLE:
                raise
            else:
                message = f"{title} cannot be read, and is looked for again: {error}"
        except InvalidJob as problem:
            message = f"{title} makes no valid job, and is looked for again: {problem}"
        if self._waits(manifest):
            await self._report(manifest, message)

    def _waits(self, manifest: Manifest) -> bool:
        return isinstance(self._cache.job(parse_key(manifest)), TemplateUnread)

    async def _take(self, manifest: Manifest, template: Manifest) -> None:
        name, uid, spec = template["metadata"]["name"], template["metadata"]["uid"], usable_spec(template)
        # Other pods may be made from it, so that the API server is asked about them again: this
        # generation has not been seen yet.
        status = {field: value for field, value in manifest["status"].items() if field != "observedGeneration"}
        status[FIELD] = {"name": name, "uid": uid}
        if resumes(manifest):
            resumed = f"the job resumes with {titled(name)} as it is now"
            status["conditions"] = self._with(manifest, Condition(names.SUSPENDED, True, names.JOB_RESUMED, resumed))
        parse_job({**manifest, "status": status}, self._cache.defaults, {uid: spec})
        self._cache.note_template(uid, spec)
        await self._write_status(manifest, status)

    async def _report(self, manifest: Manifest, message: str) -> None:
        """Says what a job waits for.

        Raises:
            ClusterError: always, to have the template read again: the platform's team may repair it.
        """
        status, suspend = manifest["status"], manifest["spec"].get("suspend") is True
        generation, runs = manifest["metadata"].get("generation", 1), is_true(status, names.RUNNING)
        missing = Condition(names.DEGRADED if runs else names.RUNNING, runs, names.TEMPLATE_MISSING, message)
        known = find_condition(status, missing.type)
        told = (status.get("observedGeneration"), known.get("reason"), known.get("message"))
        if told != (generation, names.TEMPLATE_MISSING, message[:MAX_MESSAGE]):
            conditions = [missing]
            if suspend and not status.get("round") and not is_true(status, names.SUSPENDED):
                conditions.append(Condition(names.SUSPENDED, True, names.JOB_SUSPENDED, "spec.suspend is true: nothing runs"))
            state = status["state"] if runs else names.SUSPENDED if suspend else "Pending"
            said = {"conditions": self._with(manifest, *conditions), "state": state, "observedGeneration": generation}
            await self._write_status(manifest, {**status, **said})
        raise ClusterError(404, message, judgement=Judgement.REFUSED)

    def _with(self, manifest: Manifest, *conditions: Condition) -> list[dict[str, Any]]:
        status, time = manifest["status"], write_time(self._time_of_day())
        types = {condition.type for condition in conditions}
        others = [condition for condition in status.get("conditions") or () if condition.get("type") not in types]
        generation = manifest["metadata"].get("generation", 1)
        return [*others, *merge_conditions(status, conditions, generation=generation, time=time)]
