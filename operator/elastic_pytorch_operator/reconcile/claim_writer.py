"""Creates the volume claims of jobs.

A claim that is there is used, or reported; the operator deletes none.
"""

from collections.abc import Awaitable, Callable, Collection
from functools import partial

from elastic_pytorch_operator.api.resources import CLAIMS
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.manifests.worker_pod import volume_claim
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.volumes import ClaimTemplate, Conflict, find_conflict

# A claim of a deleted job is deleted once the last pod that mounts it has ended.
CLAIM_GOES_SECONDS = 2.0


def claim_taken(conflict: Conflict) -> ClusterError:
    """The name of a job's claim is taken by another one: one that is being deleted is gone soon, any other one stays."""
    judgement = Judgement.TROUBLE if conflict.passes else Judgement.REFUSED
    words = f"the API server refuses: {conflict.message}"  # in both cases
    return ClusterError(
        409,
        conflict.message,
        retry_after_seconds=CLAIM_GOES_SECONDS,
        judgement=judgement,
        words=words,
    )


class ClaimWriter:
    """Creates each claim of a job once, before its first pod."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: set[tuple[str, str]] = set()  # job UID, template

    def forget(self) -> None:
        """Has every claim looked for again, before the next pod of its job."""
        self._known.clear()

    def forget_others(self, job_uids: Collection[str]) -> None:
        self._known = {(uid, name) for uid, name in self._known if uid in job_uids}

    def missing(self, job: Job) -> dict[str, Callable[[], Awaitable[None]]]:
        """The writes that create those of a job's claims that are not known to be there, by the names of their templates."""
        known = self._known
        return {
            claim.name: partial(self._create, job, claim)
            for claim in job.claims
            if (job.uid, claim.name) not in known
        }

    async def try_all(self, job: Job) -> None:
        """Asks the API server whether it would take a job's claims.

        Raises:
            ClusterError: it would not.
        """
        for template in job.claims:
            try:
                await self._cluster.create(
                    CLAIMS, volume_claim(job, template), strict=True, dry_run=True
                )
            except ClusterError as error:
                await self._look(job, template, error)

    async def _create(self, job: Job, template: ClaimTemplate) -> None:
        try:
            await self._cluster.create(CLAIMS, volume_claim(job, template), strict=True)
        except ClusterError as error:
            await self._look(job, template, error)
        self._known.add((job.uid, template.name))

    async def _look(self, job: Job, template: ClaimTemplate, refusal: ClusterError) -> None:
        """Passes over a refusal if the job has its claim.

        A quota that is used up and a webhook are asked before the name is.
        """
        if refusal.code != 409 and refusal.judgement is Judgement.TROUBLE:
            raise refusal
        try:
            claim = await self._cluster.get(
                CLAIMS, job.key.namespace, template.claim_name(job.key.name)
            )
        except ClusterError as error:
            raise refusal if error.code == 404 else error from None
        conflict = find_conflict(claim, job.key.name, job.uid)
        if conflict is not None:
            raise claim_taken(conflict)
