"""The few verbs of the API server that the operator uses, as an interface: the real cluster and the in-memory one both have it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.numbers import parse_count
from elastic_pytorch_operator.api.write_errors import Cause, Judgement, judge

WorkloadPart = Literal["spec", "status"]
MAX_QUOTED = 500  # bytes of an answer that cannot be read


class ClusterError(Exception):
    """The API server has refused a request, or could not be asked.

    Attributes:
        code: the HTTP status; 0: no answer.
        reason: of the Status object, such as `Invalid`.
        retry_after_seconds: how long the API server asks to wait; 0: it does not say.
        judgement: what it means for the object to write; by default, what the code and the message
            say.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        causes: Sequence[Cause] = (),
        retry_after_seconds: float = 0.0,
        judgement: Judgement | None = None,
        words: str = "",
    ) -> None:
        super().__init__(message.encode(errors="replace").decode())  # half a surrogate pair can be neither logged nor sent
        self.code = code
        self.reason = reason
        self.causes = causes
        self.retry_after_seconds = retry_after_seconds
        self.judgement = judgement or judge(code, str(self), causes)
        self._words = words

    @property
    def words(self) -> str:
        return self._words or f"the API server {'fails' if self.judgement is Judgement.TROUBLE else 'refuses'}: {self}"


def error_of_answer(code: int, text: bytes, retry_after: str) -> ClusterError:
    """The error in a Status object, or else the start of the answer.

    Args:
        retry_after: the header; it is in seconds here, never a date.
    """
    seconds = float(parse_count(retry_after) or 0)
    try:
        status = json.loads(text)
        listed = (status.get("details") or {}).get("causes") or []
        causes = [Cause(*(str(cause.get(name, "")) for name in ("reason", "message", "field"))) for cause in listed]
        return ClusterError(
            code, str(status["message"]), reason=str(status.get("reason", "")), causes=causes, retry_after_seconds=seconds
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return ClusterError(code, text[:MAX_QUOTED].decode(errors="replace"), retry_after_seconds=seconds)


@dataclass(frozen=True, slots=True)
class PodIdentity:
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class TokenKeys:
    issuer: str  # the `iss` of the tokens that it issues
    keys: Manifest  # a JSON Web Key Set (RFC 7517)


class RequestObserver(Protocol):
    def requested(self, method: str, code: int) -> None:
        """The API server has answered a request with a status; 0: it has not answered."""
        ...


class Cluster(Protocol):
    """What the operator asks of a cluster. All methods raise ClusterError."""

    @property
    def namespaces(self) -> Sequence[str]: ...

    async def list_jobs(self, namespace: str = "") -> list[Manifest]:
        """All ElasticPyTorchJobs of a namespace; of all if it is empty."""
        ...

    async def list_pods(self, namespace: str = "") -> list[Manifest]:
        """All pods there with the label of a role in a job. Not the label managed-by: policies of others write it, too."""
        ...

    async def list_nodes(self) -> list[Manifest]: ...

    async def get_service(self, namespace: str, name: str) -> Manifest: ...

    async def create_service(self, manifest: Manifest) -> Manifest: ...

    async def get_claim(self, namespace: str, name: str) -> Manifest: ...

    async def create_claim(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Creates a PersistentVolumeClaim; a field that the API server does not know is an error."""
        ...

    async def get_pod_group(self, api_version: str, namespace: str, name: str) -> Manifest | None:
        """A PodGroup of a scheduler; None if there is none, or the cluster does not know that API."""
        ...

    async def put_pod_group(self, manifest: Manifest, *, dry_run: bool = False) -> None:
        """Creates a PodGroup, or replaces the one of the resource version in it; ClusterError 404 if the cluster does not know its API."""
        ...

    async def delete_pod_group(self, api_version: str, namespace: str, name: str, uid: str) -> None:
        """Deletes a PodGroup if it is the one with that UID; one that is gone already is no error."""
        ...

    async def create_pod(self, manifest: Manifest, *, strict: bool = False, dry_run: bool = False) -> Manifest:
        """Creates a pod.

        Args:
            strict: a field that the API server does not know is an error; else it is dropped.
        """
        ...

    async def delete_pod(self, namespace: str, name: str, uid: str, *, grace_seconds: int | None = None) -> Manifest | None:
        """Deletes a pod if it is the one with that UID; None if it is gone already.

        Args:
            uid: a precondition: a pod of the same name that came later is left alone.
            grace_seconds: 0 removes the object without waiting for the kubelet; None: the pod's
                own.
        """
        ...

    async def get_template(self, name: str) -> Manifest: ...

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes a job if it is the one with that UID; one that is gone already is no error."""
        ...

    async def patch_job_status(self, namespace: str, name: str, status: Manifest, version: str) -> Manifest:
        """Merges fields into a job's status (null removes one); returns the job.

        Args:
            version: that the fields are based on; a job with another one is a ClusterError 409.
        """
        ...

    async def list_workloads(self, namespace: str = "") -> list[Manifest]:
        """Kueue's Workloads there with the operator's label of their number; none if Kueue is not installed."""
        ...

    async def create_workload(self, manifest: Manifest) -> Manifest: ...

    async def patch_workload(
        self, namespace: str, name: str, patch: Manifest, version: str, part: WorkloadPart = "spec"
    ) -> Manifest | None:
        """Merges fields into a Workload (null removes one); returns it, None if it is gone.

        Args:
            version: that the fields are based on; a Workload with another one is a ClusterError
                409.
            part: whose fields they are.
        """
        ...

    async def resize_workload(self, namespace: str, name: str, count: int, version: str) -> Manifest | None:
        """Changes for how many pods the first pod set of a Workload asks, as `patch_workload` changes fields."""
        ...

    async def delete_workload(self, namespace: str, name: str, uid: str) -> None:
        """Deletes a Workload if it is the one with that UID; one that is gone already is no error."""
        ...

    async def get_resource_flavor(self, name: str) -> Manifest: ...

    async def get_workload_priority_class(self, name: str) -> Manifest: ...

    async def list_priority_classes(self) -> list[Manifest]: ...

    async def create_event(self, manifest: Manifest) -> None:
        """Records an event (events.k8s.io/v1)."""
        ...

    async def review_token(self, token: str, audience: str) -> PodIdentity | None:
        """The pod that a ServiceAccount token for this audience was issued to, None if it is not valid."""
        ...

    async def review_user(self, token: str) -> Manifest | None:
        """Whose token for the API server itself it is, as a TokenReview names the user; None if it is not valid."""
        ...

    async def review_read(self, user: Manifest, path: str) -> bool:
        """Whether the roles of a user allow `get` of a path that is no resource, as a SubjectAccessReview finds."""
        ...

    async def get_token_keys(self) -> TokenKeys:
        """The public keys of the API server's ServiceAccount tokens."""
        ...

    # The chart renders the operator's own objects. They are only read and replaced here: ClusterError 404 if one is not there.
    async def get_lease(self, namespace: str, name: str) -> Manifest: ...

    async def put_lease(self, manifest: Manifest) -> Manifest:
        """Replaces the Lease of the resource version in a manifest; ClusterError 409 if another writer came first."""
        ...

    async def get_endpoint_slice(self, namespace: str, name: str) -> Manifest: ...

    async def put_endpoint_slice(self, manifest: Manifest) -> Manifest:
        """Replaces the EndpointSlice of the resource version in a manifest; ClusterError 409 if another writer came first."""
        ...

    async def get_secret(self, namespace: str, name: str) -> Manifest: ...

    async def put_secret(self, manifest: Manifest) -> Manifest:
        """Replaces the Secret of the resource version in a manifest; ClusterError 409 if another writer came first."""
        ...
