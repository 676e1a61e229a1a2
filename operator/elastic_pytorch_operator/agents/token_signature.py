"""Identifies the pod of a token by its signature, without a TokenReview of each after a takeover.

The API server publishes the keys of these JWTs by ServiceAccount issuer discovery. A signature does
not prove that the pod or the ServiceAccount still exists: the caller looks up the pod's UID, and a
later review finds the other.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import jwt

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError, PodIdentity

# Not much longer than the API server publishes them.
KEYS_SECONDS = 300.0
AHEAD_SECONDS = 240.0  # after which a token causes a new read, and does not wait for it
# Between two reads: anyone may invent a key's name.
UNKNOWN_KEY_SECONDS = 10.0

logger = logging.getLogger(__name__)


class TokenSignatures:
    def __init__(self, cluster: Cluster, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._issuer = ""
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_at = self._asked_at = -math.inf
        self._reading: asyncio.Task[None] | None = None
        self._warned = False

    async def identify(self, token: str) -> PodIdentity | None:
        try:
            name = str(jwt.get_unverified_header(token).get("kid"))
        except jwt.InvalidTokenError:
            return None
        key, now = self._known(name), self._clock()
        if (
            (key is None or now >= self._read_at + AHEAD_SECONDS)
            and self._reading is None
            and now >= self._asked_at + UNKNOWN_KEY_SECONDS
        ):
            self._asked_at = now
            self._reading = asyncio.create_task(self._read_keys())
        if key is None and self._reading is not None:
            await asyncio.shield(self._reading)
            key = self._known(name)
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

    def _known(self, name: str) -> jwt.PyJWK | None:
        return self._keys.get(name) if self._clock() < self._read_at + KEYS_SECONDS else None

    async def _read_keys(self) -> None:
        asked_at = self._clock()
        try:
            found = await self._cluster.get_token_keys()
            self._keys = {
                str(key.key_id): key for key in jwt.PyJWKSet.from_dict(dict(found.keys)).keys
            }
            self._issuer, self._read_at = found.issuer, asked_at
        except (ClusterError, jwt.PyJWTError) as error:
            if not self._warned:
                logger.warning(
                    "cannot read the keys of tokens' signatures; without them the API server "
                    "reviews each token first: %s",
                    error,
                )
            self._warned = True
        else:
            self._warned = False
        finally:
            self._reading = None


def _pod_of(claim: Any) -> PodIdentity | None:
    if not isinstance(claim, dict) or not isinstance(pod := claim.get("pod"), dict):
        return None
    return PodIdentity(str(claim.get("namespace")), str(pod.get("name")), str(pod.get("uid")))
