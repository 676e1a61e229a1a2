"""The operator's requests to the API server."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.numbers import parse_count
from elastic_pytorch_operator.api.resources import Resource
from elastic_pytorch_operator.api.write_errors import Judgement, judge

Change = Manifest | Sequence[Manifest]
MAX_QUOTED = 500  # bytes of an answer that cannot be read
MAX_RETRY_AFTER_SECONDS = 60.0


class ClusterError(Exception):
    """The API server has refused a request, or could not be asked."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        fields: Sequence[str] = (),
        retry_after_seconds: float = 0.0,
        judgement: Judgement | None = None,
        words: str = "",
    ) -> None:
        # Half a surrogate pair can be neither logged nor sent.
        super().__init__(message.encode(errors="replace").decode())
        self.code = code  # 0: no answer
        # 0: not said; a webhook may say anything
        self.retry_after_seconds = min(retry_after_seconds, MAX_RETRY_AFTER_SECONDS)
        self.judgement = judgement or judge(code, str(self), fields)
        self._words = words

    @property
    def words(self) -> str:
        verb = "fails" if self.judgement is Judgement.TROUBLE else "refuses"
        return self._words or f"the API server {verb}: {self}"


def error_of_answer(code: int, text: bytes, retry_after: str) -> ClusterError:
    """The error in a Status object, or else the beginning of the answer."""
    message = text[:MAX_QUOTED].decode(errors="replace")
    fields: list[str] = []
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        status = json.loads(text)
        causes = (status.get("details") or {}).get("causes") or []
        fields = [str(cause.get("field", "")) for cause in causes]
        message = str(status["message"])
    seconds = float(parse_count(retry_after) or 0)
    return ClusterError(code, message, fields=fields, retry_after_seconds=seconds)


@dataclass(frozen=True, slots=True)
class PodIdentity:
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class TokenKeys:
    issuer: str  # the `iss` of its tokens
    keys: Manifest  # a JSON Web Key Set (RFC 7517)


class Cluster(Protocol):
    """All methods raise ClusterError."""

    @property
    def namespaces(self) -> Sequence[str]: ...

    async def list_all(self, resource: Resource, namespace: str = "") -> list[Manifest]:
        """All objects of a resource in a namespace; if that is empty, in all."""
        ...

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest: ...

    async def create(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        """Creates an object; `strict`: a field that the API server does not know is an error."""
        ...

    async def replace(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        """Replaces an object; ClusterError 409 if it no longer has the manifest's version."""
        ...

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        version: str,
        change: Change,
        subresource: str = "",
    ) -> Manifest:
        """Changes an object by a JSON merge patch (null removes a field) or a JSON patch.

        ClusterError 409 if it no longer has the version.
        """
        ...

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        *,
        grace_seconds: int | None = None,
    ) -> Manifest | None:
        """Deletes an object if it has that UID; returns None if it is gone already.

        With 0 grace seconds, a pod is removed without waiting for the kubelet; None: its own.
        """
        ...

    async def review_token(self, token: str, audience: str) -> PodIdentity | None:
        """The pod that a token for this audience was issued to; None if it is not valid."""
        ...

    async def review_user(self, token: str) -> Manifest | None:
        """The user whose token for the API server it is, as in a TokenReview; None if not valid."""
        ...

    async def review_read(self, user: Manifest, path: str) -> bool:
        """Whether a user may `get` a path that is no resource, by a SubjectAccessReview."""
        ...

    async def get_token_keys(self) -> TokenKeys: ...
