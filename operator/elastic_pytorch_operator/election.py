"""Takes, keeps and gives back the Lease that says who leads. What may be done with it, `leadership.py` decides."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from elastic_pytorch_operator.cluster import Cluster, ClusterError, Manifest
from elastic_pytorch_operator.leadership import (
    LOOK_SECONDS,
    RENEW_SECONDS,
    Candidacy,
    claim,
    claimed,
    leads,
    may_claim,
    read_lease,
    release,
    see,
)

logger = logging.getLogger(__name__)

REQUEST_SECONDS = 4.0  # two tries fit between a renewal and the deadline
JITTER = 0.2  # of the time between two looks, so that two replicas do not keep step


class Elector:
    """One replica's part in the election.

    Args:
        cluster: where the Lease is.
        namespace: of the Lease.
        name: of the Lease.
        identity: of this replica, never used before.
        clock: monotonic seconds.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, name: str, identity: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._candidacy = Candidacy(identity)

    @property
    def leading(self) -> bool:
        """Whether this replica may act now. Asks the clock, so it holds even if nothing of this process ran for a while."""
        return leads(self._candidacy, self._clock())

    @property
    def holder(self) -> str:
        """Who was last seen to lead; empty: nobody."""
        return self._candidacy.seen.holder if self._candidacy.seen else ""

    async def acquire(self) -> None:
        """Waits until this replica leads."""
        while True:
            holder = self.holder
            await self._try()
            if self.leading:
                logger.info("leading", extra={"identity": self._candidacy.identity, "lease": self._name})
                return
            if self.holder != holder:
                logger.info("standing by", extra={"leader": self.holder or "nobody"})
            await asyncio.sleep(LOOK_SECONDS * random.uniform(1 - JITTER, 1 + JITTER))

    async def hold(self) -> None:
        """Renews the lease for as long as that is possible; returns when this replica leads no more."""
        while self.leading:
            began = self._clock()
            await self._try()
            # What failed is tried again sooner: the deadline is near.
            pause = RENEW_SECONDS if self._candidacy.renewed_at and self._candidacy.renewed_at >= began else LOOK_SECONDS
            await asyncio.sleep(pause)

    async def give_back(self) -> None:
        """Lets another replica lead at once. The caller has stopped to act."""
        if not self.leading:
            return
        self._candidacy = Candidacy(self._candidacy.identity)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                found = await self._cluster.get_lease(self._namespace, self._name)
                lease = read_lease(found) if found else None
                if lease is not None and lease.holder == self._candidacy.identity:
                    await self._cluster.put_lease(self._manifest(release(lease, _time()), lease.version))
                    logger.info("gave the lease back")
        except (ClusterError, TimeoutError) as error:
            logger.warning("cannot give the lease back: %s", error or "no answer")

    async def _try(self) -> None:
        """Looks at the lease, and claims it if that is allowed."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                found = await self._cluster.get_lease(self._namespace, self._name)
                self._candidacy = see(self._candidacy, read_lease(found) if found else None, self._clock())
                if not may_claim(self._candidacy, self._clock()):
                    return
                version = self._candidacy.seen.version if self._candidacy.seen else ""
                sent_at = self._clock()
                written = await self._cluster.put_lease(self._manifest(claim(self._candidacy, _time()), version))
                self._candidacy = claimed(self._candidacy, read_lease(written), sent_at, self._clock())
        except ClusterError as error:
            if error.code != 409:  # somebody was quicker
                logger.warning("cannot claim the lease: %s", error)
        except TimeoutError:
            logger.warning("cannot claim the lease: no answer from the API server")

    def _manifest(self, spec: dict[str, Any], version: str) -> Manifest:
        metadata = {"namespace": self._namespace, "name": self._name}
        if version:
            metadata["resourceVersion"] = version
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def _time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
