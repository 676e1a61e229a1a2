"""Acquires, renews and gives back the Lease, by the rules of `lease`."""

import asyncio
import logging
import math
import random
from collections.abc import Callable
from datetime import UTC, datetime

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import LEASES
from elastic_pytorch_operator.api.times import write_micro_time
from elastic_pytorch_operator.cluster.clocks import boot_seconds
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.leadership.lease import (
    Candidacy,
    LeaseTiming,
    acquirable_at,
    acquire,
    acquired,
    leads_until,
    read_lease,
    release,
    see,
)

logger = logging.getLogger(__name__)

JITTER = 0.2  # of the time between two looks, so that two replicas do not keep step


class Elector:
    """The clock goes on while this machine is suspended, so that no leader acts after its lease."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float] = boot_seconds,
        timing: LeaseTiming | None = None,
        may_renew: Callable[[], bool] = lambda: True,
    ) -> None:
        self.lost_leader = ""  # let its lease run out while the API server answered
        self._may_renew = may_renew
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._timing = timing or LeaseTiming()
        self._candidacy = Candidacy(identity, timing=self._timing)
        self._found: Manifest = {}
        self._wrote_last = False  # no other replica is known to have written the Lease since
        self._unanswered_at = -math.inf

    @property
    def leading(self) -> bool:
        """The clock decides, because this process may have been suspended."""
        return self._clock() < leads_until(self._candidacy)

    @property
    def holder(self) -> str:
        return self._candidacy.seen.holder

    async def acquire(self) -> None:
        while True:
            holder = self.holder
            await self._try()
            if self.leading:
                logger.info(
                    "leading", extra={"identity": self._candidacy.identity, "lease": self._name}
                )
                return
            if self.holder != holder:
                logger.info("on standby", extra={"leader": self.holder or "none"})
            look = self._clock() + self._timing.look_seconds * random.uniform(
                1 - JITTER, 1 + JITTER
            )
            expiry = acquirable_at(self._candidacy)
            await self._sleep_until(expiry if self._clock() < expiry < look else look)

    async def renew(self) -> None:
        while self.leading:
            began = self._clock()
            if self._may_renew():
                await self._try()
            renewed = self._candidacy.renewed_at is not None and self._candidacy.renewed_at >= began
            pause = self._timing.retry_period_seconds if renewed else self._timing.pause_seconds
            due = (began if renewed else self._clock()) + pause
            await self._sleep_until(min(due, leads_until(self._candidacy)))

    async def give_back(self) -> None:
        """Lets another replica lead at once; the caller has stopped acting."""
        if not self.leading:
            return
        self._candidacy = Candidacy(self._candidacy.identity, timing=self._timing)
        try:
            async with asyncio.timeout(self._timing.renew_deadline_seconds):
                found = await self._cluster.get(LEASES, self._namespace, self._name)
                lease = read_lease(found)
                if lease.holder == self._candidacy.identity:
                    await self._cluster.replace(LEASES, {**found, "spec": release(lease, _time())})
                    logger.info("gave the lease back")
        except (ClusterError, TimeoutError) as error:
            logger.warning("cannot give the lease back: %s", error or "no answer")

    async def _try(self) -> None:
        """Acquires or renews the lease if that is allowed, within the time that there is.

        As a connection may be dead, a second request begins beside one that is not answered soon.
        """
        # For a look and the write that follows; a leader only writes.
        seconds = self._timing.renew_deadline_seconds
        if self.leading:
            seconds = min(
                2 * self._timing.request_seconds, leads_until(self._candidacy) - self._clock()
            )
        claims = {asyncio.create_task(self._claim())}
        try:
            async with asyncio.timeout(seconds):
                answered, _ = await asyncio.wait(claims, timeout=self._timing.request_seconds)
                if not answered:
                    claims.add(asyncio.create_task(self._claim()))
                await _first_success(claims)
        except ClusterError as error:
            if error.code != 409:  # another replica was quicker
                self._unanswered_at = self._clock()
                logger.warning("cannot claim the lease: %s", error)
        except TimeoutError:
            self._unanswered_at = self._clock()
            logger.warning("cannot claim the lease: no answer from the API server")
        finally:
            for claim in claims:
                claim.cancel()

    async def _claim(self) -> None:
        if not self._wrote_last:
            self._found = await self._cluster.get(LEASES, self._namespace, self._name)
            self._candidacy = see(self._candidacy, read_lease(self._found), self._clock())
        self._wrote_last = False
        if self._clock() >= acquirable_at(self._candidacy):
            await self._write()

    async def _write(self) -> None:
        before, sent_at = self._candidacy, self._clock()
        self._found = await self._cluster.replace(
            LEASES, {**self._found, "spec": acquire(before, _time())}
        )
        self._candidacy = acquired(before, read_lease(self._found), sent_at, self._clock())
        self._wrote_last = True
        if (
            before.seen.holder not in ("", before.identity)
            and before.changed_at > self._unanswered_at
        ):
            self.lost_leader = before.seen.holder

    async def _sleep_until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - self._clock()))


async def _first_success(tasks: set[asyncio.Task[None]]) -> None:
    for task in asyncio.as_completed(tasks):
        try:
            return await task
        except ClusterError as error:
            failed = error
    raise failed


def _time() -> str:
    return write_micro_time(datetime.now(UTC))
