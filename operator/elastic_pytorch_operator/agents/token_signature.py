"""Whose a token is, by its signature. After a takeover thousands of agents come at once: a TokenReview for each would keep them waiting.

ServiceAccount tokens are JWTs, and the API server publishes the keys that it signs them with
(https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#service-account-issuer-discovery).
A signature does not tell whether the token's pod still exists: the caller looks up the pod's UID. Nor does it tell whether the
ServiceAccount exists: a review does. A token that cannot be checked here is not refused, but left to a review.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import jwt

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError, PodIdentity

KEYS_SECONDS = 300.0  # then they are read again: a key that the API server has withdrawn must not be used for long
UNKNOWN_KEY_SECONDS = 10.0  # sooner than this, an unknown key's name does not have them read again: anyone may make one up

logger = logging.getLogger(__name__)


class TokenSignatures:
    """Checks the signatures of tokens with the API server's public keys.

    Args:
        cluster: whose API server is asked for its keys.
        clock: monotonic seconds.
    """

    def __init__(self, cluster: Cluster, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._issuer = ""
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def identify(self, token: str) -> PodIdentity | None:
        """The pod that a token was issued to; None if that cannot be told from its signature."""
        try:
            name = str(jwt.get_unverified_header(token).get("kid"))
        except jwt.InvalidTokenError:
            return None
        await self._read_keys(name)
        key = self._keys.get(name)
        if key is None:
            return None
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=names.TOKEN_AUDIENCE,
                issuer=self._issuer,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.InvalidTokenError:
            return None
        return _pod_of(claims.get("kubernetes.io"))

    async def _read_keys(self, name: str) -> None:
        """Has the keys read if they are old, or if the one of a name is not among them. Without an answer there are none."""
        async with self._reading:
            age = KEYS_SECONDS if self._read_at is None else self._clock() - self._read_at
            if age < (KEYS_SECONDS if name in self._keys else UNKNOWN_KEY_SECONDS):
                return
            try:
                found = await self._cluster.get_token_keys()
                self._keys = {str(key.key_id): key for key in jwt.PyJWKSet.from_dict(dict(found.keys)).keys}
                self._issuer = found.issuer
            except (ClusterError, jwt.PyJWTError) as error:
                if self._keys or self._read_at is None:
                    logger.warning("cannot check tokens' signatures; the API server reviews each token first: %s", error)
                self._keys = {}
            self._read_at = self._clock()


def _pod_of(claim: Any) -> PodIdentity | None:
    """The pod of the private claim of a ServiceAccount token; None if it is bound to none."""
    if not isinstance(claim, dict) or not isinstance(pod := claim.get("pod"), dict):
        return None
    return PodIdentity(str(claim.get("namespace")), str(pod.get("name")), str(pod.get("uid")))
