"""Creates the volume claims of jobs; the operator uses or reports other claims and deletes none."""

from collections.abc import Awaitable, Callable, Collection
from functools import partial

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import CLAIMS, Resource
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.manifests.worker_pod import volume_claim
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.volumes import ClaimTemplate, Conflict, find_conflict

CLAIM_GOES_SECONDS = 2.0  # a deleted job's claim goes after the last pod that mounts it


def claim_taken(conflict: Conflict) -> ClusterError:
    judgement = Judgement.TROUBLE if conflict.passes else Judgement.REFUSED
    words = f"the API server refuses: {conflict.message}"
    seconds, message = CLAIM_GOES_SECONDS, conflict.message
    return ClusterError(409, message, retry_after_seconds=seconds, judgement=judgement, words=words)


async def find_refused(
    cluster: Cluster, resource: Resource, namespace: str, name: str, refusal: ClusterError
) -> Manifest:
    """Raises the refusal of a creation unless its object exists: quotas and webhooks come first."""
    if refusal.code != 409 and refusal.judgement is Judgement.TROUBLE:
        raise refusal
    try:
        return await cluster.get(resource, namespace, name)
    except ClusterError as error:
        raise refusal if error.code == 404 else error from None


class ClaimWriter:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: set[tuple[str, str]] = set()  # job UID, template

    def forget(self) -> None:
        self._known.clear()

    def forget_others(self, job_uids: Collection[str]) -> None:
        self._known = {(uid, name) for uid, name in self._known if uid in job_uids}

    def missing(self, job: Job) -> dict[str, Callable[[], Awaitable[None]]]:
        missing = (claim for claim in job.claims if (job.uid, claim.name) not in self._known)
        return {claim.name: partial(self._create, job, claim) for claim in missing}

    async def try_all(self, job: Job) -> None:
        """Raises ClusterError if the API server would not take a claim."""
        for template in job.claims:
            await self._create(job, template, dry_run=True)

    async def _create(self, job: Job, template: ClaimTemplate, *, dry_run: bool = False) -> None:
        try:
            claim = volume_claim(job, template)
            await self._cluster.create(CLAIMS, claim, strict=True, dry_run=dry_run)
        except ClusterError as error:
            await self._look(job, template, error)
        if not dry_run:
            self._known.add((job.uid, template.name))

    async def _look(self, job: Job, template: ClaimTemplate, refusal: ClusterError) -> None:
        name = template.claim_name(job.key.name)
        claim = await find_refused(self._cluster, CLAIMS, job.key.namespace, name, refusal)
        conflict = find_conflict(claim, job.key.name, job.uid)
        if conflict is not None:
            raise claim_taken(conflict)
