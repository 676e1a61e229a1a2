"""Writes the PodGroups of jobs, which have no watch: it remembers them and looks now and then."""

from collections.abc import Collection

from elastic_pytorch_operator.api.gang_schedulers import GangScheduler
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import pod_groups
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.manifests.pod_group import pod_group
from elastic_pytorch_operator.reconcile.existing_objects import (
    PREDECESSOR_GOES_SECONDS,
    BlockedError,
    check_owner,
)
from elastic_pytorch_operator.spec.job import Job


class PodGroupWriter:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # By job UID: whose PodGroup, and the gang's size; 0: there is none.
        self._known: dict[str, tuple[GangScheduler, int]] = {}

    def minimum(self, job: Job) -> int | None:
        gang, size = self._known.get(job.uid, (None, None))
        return size if gang is job.scheduling.gang else None

    def forget(self, job_uid: str) -> None:
        """Unless there is none, as only this operator makes one."""
        _, size = self._known.get(job_uid, (None, 0))
        if size:
            del self._known[job_uid]

    def forget_others(self, job_uids: Collection[str]) -> None:
        self._known = {uid: known for uid, known in self._known.items() if uid in job_uids}

    async def put(self, job: Job, *, without_pods: bool = False, dry_run: bool = False) -> None:
        """Makes a job's PodGroup, if it is to have one, or gives it the job's minimum.

        Args:
            without_pods: no pod keeps a PodGroup that is being deleted, so another follows soon.
        """
        gang = job.scheduling.gang
        if gang is None:
            return
        wanted, known = pod_group(job, gang), await self._find(job, gang)
        if without_pods and known is not None and known["metadata"].get("deletionTimestamp"):
            problem = f"PodGroup {job.key.name} is still being deleted"
            raise BlockedError(409, problem, goes_seconds=PREDECESSOR_GOES_SECONDS)
        if known is None:
            await self._write(gang, wanted, dry_run=dry_run)
        elif any(known["spec"].get(name) != value for name, value in wanted["spec"].items()):
            changed = {**known, "spec": {**known["spec"], **wanted["spec"]}}
            await self._write(gang, changed, dry_run=dry_run)
        if not dry_run:
            self._known[job.uid] = gang, job.minimum

    async def delete(self, job: Job) -> None:
        gang = job.scheduling.gang
        assert gang is not None  # plans ask for it only then
        try:
            known = await self._find(job, gang)
        except BlockedError:
            # The name is another's, or the operator may not look: it has made none.
            known = None
        if known is not None:
            kind, uid = pod_groups(gang.api_version), known["metadata"]["uid"]
            await self._cluster.delete(kind, job.key.namespace, job.key.name, uid)
        self._known[job.uid] = gang, 0

    async def _find(self, job: Job, gang: GangScheduler) -> Manifest | None:
        try:
            kind = pod_groups(gang.api_version)
            known = await self._cluster.get(kind, job.key.namespace, job.key.name)
        except ClusterError as error:
            if error.code == 404:
                return None
            # No admission comes before a read: 403 is a lack of permission.
            if error.code != 403:
                raise
            problem = "the operator may not manage its PodGroup: "
            problem += f"add {gang.name} to gangSchedulers in the chart's values"
            raise _unusable(403, gang, problem) from error
        problem = f"PodGroup {job.key.name} exists and is not owned by this job"
        check_owner(job, known, f"{problem}: delete it, or create the job under another name")
        return known

    async def _write(self, gang: GangScheduler, manifest: Manifest, *, dry_run: bool) -> None:
        exists = manifest["metadata"].get("resourceVersion")
        write = self._cluster.replace if exists else self._cluster.create
        try:
            await write(pod_groups(gang.api_version), manifest, strict=True, dry_run=dry_run)
        except ClusterError as error:
            if exists or error.code != 404:
                raise
            problem = f"the cluster has no PodGroup of {gang.api_version}: {gang.remedy}"
            raise _unusable(404, gang, f"{problem}, or remove gang") from error


def _unusable(code: int, gang: GangScheduler, problem: str) -> BlockedError:
    return BlockedError(code, f"spec.scheduling.gangScheduler is {gang.name}, but {problem}")
