"""An object of a job may find its name taken: by the job itself, an earlier one, or others."""

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import Resource
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.spec.job import Job

PREDECESSOR_GOES_SECONDS = 5.0  # about what the garbage collector needs after a job's deletion


class BlockedError(ClusterError):
    """An object cannot be made: people have to act, unless the other one is about to go."""

    def __init__(self, code: int, message: str, *, goes_seconds: float = 0.0) -> None:
        super().__init__(
            code,
            message,
            retry_after_seconds=goes_seconds,
            judgement=Judgement.TROUBLE if goes_seconds else Judgement.REFUSED,
            words=f"the API server refuses: {message}",
        )


async def create_or_find(
    cluster: Cluster, resource: Resource, manifest: Manifest, **options: bool
) -> Manifest | None:
    """Returns the object that is there already, also if a quota or a webhook refuses another."""
    try:
        await cluster.create(resource, manifest, **options)
    except ClusterError as refusal:
        if refusal.code != 409 and refusal.judgement is Judgement.TROUBLE:
            raise
        metadata = manifest["metadata"]
        try:
            return await cluster.get(resource, metadata["namespace"], metadata["name"])
        except ClusterError as error:
            raise refusal if error.code == 404 else error from None
    return None


def check_owner(job: Job, found: Manifest, problem: str) -> None:
    """Raises BlockedError with this problem if an object by a job's name is not the job's."""
    owners = found["metadata"].get("ownerReferences") or ()
    if not any(owner.get("uid") == job.uid for owner in owners):
        goes_seconds = PREDECESSOR_GOES_SECONDS if is_predecessors(job, found) else 0.0
        raise BlockedError(409, problem, goes_seconds=goes_seconds)


def is_predecessors(job: Job, found: Manifest) -> bool:
    """Whether an earlier job of the name owns an object, which goes with it."""
    return any(
        owner.get("kind") == names.KIND
        and owner.get("name") == job.key.name
        and owner.get("uid") != job.uid
        for owner in found["metadata"].get("ownerReferences") or ()
    )
