"""Creates the volume claims of jobs; the operator uses or reports other claims and deletes none."""

from collections.abc import Awaitable, Callable
from functools import partial

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import CLAIMS
from elastic_pytorch_operator.cluster.interface import Cluster
from elastic_pytorch_operator.manifests.worker_pod import volume_claim
from elastic_pytorch_operator.reconcile.existing_objects import (
    BlockedError,
    check_owner,
    create_or_find,
    is_predecessors,
)
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.volumes import ClaimTemplate

CLAIM_GOES_SECONDS = 2.0  # a deleted job's claim goes after the last pod that mounts it


class ClaimWriter:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: set[tuple[str, str]] = set()  # job UID, template

    def forget(self) -> None:
        self._known.clear()

    def missing(self, job: Job) -> dict[str, Callable[[], Awaitable[None]]]:
        missing = (claim for claim in job.claims if (job.uid, claim.name) not in self._known)
        return {claim.name: partial(self._create, job, claim) for claim in missing}

    async def try_all(self, job: Job) -> None:
        """Raises ClusterError if the API server would not take a claim."""
        for template in job.claims:
            await self._create(job, template, dry_run=True)

    async def _create(self, job: Job, template: ClaimTemplate, *, dry_run: bool = False) -> None:
        claim = volume_claim(job, template)
        found = await create_or_find(self._cluster, CLAIMS, claim, strict=True, dry_run=dry_run)
        if found is not None:
            check_claim(job, found)
        if not dry_run:
            self._known.add((job.uid, template.name))


def check_claim(job: Job, claim: Manifest) -> None:
    """Raises BlockedError unless a job owns a claim, or it was made for a job of that name."""
    metadata, title = claim["metadata"], f"PersistentVolumeClaim {claim['metadata']['name']}"
    if metadata.get("deletionTimestamp") or is_predecessors(job, claim):
        problem = f"{title} is being deleted; pods are created after that, with a new one"
        raise BlockedError(409, problem, goes_seconds=CLAIM_GOES_SECONDS)
    labels = metadata.get("labels") or {}
    if (
        metadata.get("ownerReferences")
        or labels.get(names.LABEL_JOB_NAME) != job.key.name
        or labels.get(names.LABEL_MANAGED_BY) != names.OPERATOR
    ):
        problem = f"{title} exists and was not created for this job: create the job again with"
        problem += " another name in spec.sharedVolumeClaims, or with that claim as a volume of"
        check_owner(job, claim, f"{problem} spec.template")
