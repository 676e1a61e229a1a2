"""Reads the templates of jobs into their statuses. One that is missing, or with which a job would not be valid, is asked for again."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import MAX_MESSAGE, Condition, find_condition, is_true, merge_conditions
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.times import write_time
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.reconcile.job_writer import JobWrite, Lane
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import parse_job
from elastic_pytorch_operator.spec.platform.job_template import FIELD, keep, resumes, titled

MISSING_SECONDS = 30.0  # between two looks for a template that no job can use yet
WriteStatus = Callable[[Manifest, dict[str, Any]], Awaitable[None]]


class UnusableTemplateError(ClusterError):
    """A job's template is missing, may not be read, or makes no valid job."""

    @property
    def judgement(self) -> Judgement:
        """The platform's team may repair it."""
        return Judgement.REFUSED


class TemplateReader:
    """Reads the template of a job when the job is new, and when it is resumed.

    Args:
        cluster: to read from.
        cache: has the defaults of jobs.
        write_status: writes a job's whole status.
        time_of_day: for the times of conditions.
    """

    def __init__(self, cluster: Cluster, cache: Cache, write_status: WriteStatus, time_of_day: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._cache = cache
        self._write_status = write_status
        self._time_of_day = time_of_day

    def read(self, manifest: Manifest, name: str) -> JobWrite | None:
        """The write that brings a template into the status of a job; None: the job is another controller's, or is being deleted."""
        if manifest["metadata"].get("deletionTimestamp") or manifest["spec"].get("managedBy") not in (None, "", names.MANAGER):
            return None
        key, send = f"template {name}", partial(self._read, manifest, name)  # of another template, no failure is known
        return JobWrite(Lane.TEMPLATE, key, key, send, urgent=False, refused_seconds=MISSING_SECONDS)

    async def _read(self, manifest: Manifest, name: str) -> None:
        status = manifest.get("status") or {}
        try:
            found = await self._cluster.get_template(name)
            # Other pods may be made from it, so that the API server is asked about them again: this generation has not been seen yet.
            status = {field: value for field, value in status.items() if field != "observedGeneration"} | {FIELD: keep(found)}
            if resumes(manifest):
                resumed = Condition(
                    names.SUSPENDED, True, names.JOB_RESUMED, f"the job resumes with {titled(name)} as it is now"
                )
                status["conditions"] = self._with(manifest, resumed)
            parse_job({**manifest, "status": status}, self._cache.defaults)
        except ClusterError as error:
            if error.judgement is Judgement.TROUBLE and error.code != 404:
                raise
            await self._report(manifest, f"{titled(name)} cannot be read, and is looked for again: {error}")
        except InvalidJob as problem:
            await self._report(manifest, f"{titled(name)} makes no valid job, and is looked for again: {problem}")
        else:
            await self._write_status(manifest, status)

    async def _report(self, manifest: Manifest, message: str) -> None:
        """Says what a job waits for.

        Raises:
            UnusableTemplateError: always, to have the template read again.
        """
        status, suspend = manifest.get("status") or {}, manifest["spec"].get("suspend") is True
        generation, known = manifest["metadata"].get("generation", 1), find_condition(status, names.RUNNING) or {}
        told = (status.get("observedGeneration"), known.get("reason"), known.get("message"))
        if told != (generation, names.TEMPLATE_MISSING, message[:MAX_MESSAGE]):
            conditions = [Condition(names.RUNNING, False, names.TEMPLATE_MISSING, message)]
            if suspend and not status.get("round") and not is_true(status, names.SUSPENDED):
                conditions.append(Condition(names.SUSPENDED, True, names.JOB_SUSPENDED, "spec.suspend is true: nothing runs"))
            state = names.SUSPENDED if suspend else "Pending"
            said = {"conditions": self._with(manifest, *conditions), "state": state, "observedGeneration": generation}
            await self._write_status(manifest, {**status, **said})
        raise UnusableTemplateError(404, message)

    def _with(self, manifest: Manifest, *conditions: Condition) -> list[dict[str, Any]]:
        """The conditions of a job, with these instead of those of their types."""
        status, time = manifest.get("status") or {}, write_time(self._time_of_day())
        types = {condition.type for condition in conditions}
        others = [condition for condition in status.get("conditions") or () if condition.get("type") not in types]
        generation = manifest["metadata"].get("generation", 1)
        return [*others, *merge_conditions(status, conditions, generation=generation, time=time)]
