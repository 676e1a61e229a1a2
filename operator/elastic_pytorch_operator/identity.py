"""Whose token is it? The API server's answer (TokenReview), remembered for a while so that heartbeats cost it nothing."""

import asyncio
import hashlib
import time
from collections import OrderedDict

from elastic_pytorch_operator import names
from elastic_pytorch_operator.cluster import Cluster, ClusterError, PodIdentity

VALID_SECONDS = 300.0
INVALID_SECONDS = 5.0
MOST_REMEMBERED = 20_000


class TokenReviewer:
    """Tells which pod a token was issued to.

    While the API server is away, an identity that was established before is still honoured: training must be able to go on, and a
    pod's name and UID do not change.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: OrderedDict[bytes, tuple[PodIdentity | None, float]] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[PodIdentity | None]] = {}

    async def identify(self, token: str) -> PodIdentity | None:
        """The pod that a token was issued to; None if the token is not valid.

        Raises:
            ClusterError: the API server could not be asked, and the token is not known.
        """
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        now = time.monotonic()
        if known is not None and now < known[1]:
            return known[0]
        asking = self._asking.get(digest)
        if asking is None:
            asking = asyncio.ensure_future(self._cluster.review_token(token, names.TOKEN_AUDIENCE))
            self._asking[digest] = asking
            asking.add_done_callback(lambda _: self._asking.pop(digest, None))
        try:
            identity = await asyncio.shield(asking)
        except ClusterError:
            if known is not None and known[0] is not None:
                return known[0]
            raise
        self._known[digest] = (identity, now + (VALID_SECONDS if identity else INVALID_SECONDS))
        self._known.move_to_end(digest)
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return identity
