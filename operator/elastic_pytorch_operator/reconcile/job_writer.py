"""The writes of one job, in the background; each plan replaces those that wait.

What is on its way is not sent a second time: the plan after its end decides.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from typing import Any

from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.http.rate_limit import RateLimit
from elastic_pytorch_operator.manifests.worker_pod import UnbuildableError
from elastic_pytorch_operator.planning.failed_writes import (
    CLAIMS,
    REFUSED_SECONDS,
    FailedWrite,
    FailedWrites,
    note_failure,
)
from elastic_pytorch_operator.reconcile.write_slots import WriteSlots
from elastic_pytorch_operator.spec.job import JobKey

logger = logging.getLogger(__name__)

MAX_WRITE_SECONDS = 55.0  # of several requests; the alert for a hanging operator needs a minute
MAX_EVENTS = 100  # that wait; of more, the oldest are dropped
# Heartbeats change a status as often as they come, and each write stores all of a job.
STATUSES_PER_SECOND, STATUS_BURST = 1.0, 10.0
# Of one reason; the next one that is sent counts the others.
EVENTS_PER_SECOND, EVENT_BURST = 1 / 30, 20.0


class WriteKind(Enum):
    """In the order in which a job sends them."""

    TEMPLATE = auto()
    SERVICE = auto()
    DRY_RUN = auto()
    CLAIMS = auto()
    POD_GROUP = auto()
    STATUS = auto()
    WORKLOADS = auto()
    PODS = auto()
    DELETES = auto()
    JOB = auto()
    EVENTS = auto()


POD_KINDS = (WriteKind.PODS, WriteKind.DELETES)
# A next plan takes these pods for deleted, and these events for recorded, so they stay.
KEPT = (WriteKind.DELETES, WriteKind.EVENTS)
# The others of a kind wait until the first one has succeeded: one refusal is enough.
ONE_FIRST = (WriteKind.CLAIMS, WriteKind.PODS)
# A pod must not mount another job's claim, is not scheduled without its gang, and is not created if
# the API server finds it malformed.
BEFORE_PODS = (WriteKind.DRY_RUN, WriteKind.CLAIMS, WriteKind.POD_GROUP)


@dataclass(frozen=True, slots=True)
class JobWrite:
    kind: WriteKind
    key: str  # of its failures from one plan to the next; writes of one key stand or fall together
    id: str  # of a deletion, the pod's UID; of each id, one write is on its way at most
    # Raises ClusterError if it fails, else does what follows. An event's send takes the number of
    # events of its reason that it stands for.
    send: Callable[..., Awaitable[None]]
    refused_seconds: float = REFUSED_SECONDS
    creates: tuple[int, str] | None = None  # a pod's index, and the Workload whose quota it uses
    keeps: tuple[str, int] | None = None  # a Workload, and for how many pods it keeps its quota
    leads_on: bool = True  # after its success, a plan may find more to do


@dataclass(frozen=True, slots=True)
class Ended:
    write: JobWrite
    error: ClusterError | None
    news: bool  # to be logged: no repeated refusal, nor one of many of the same moment
    changed: bool  # the failures known of its key
    # No write of its kind waits or is on its way any more, so a plan may find more to do. Creations
    # and deletions of pods count as one kind.
    rest: bool


@dataclass(slots=True)
class _Batch:
    sent: int = 0
    open: bool = False  # the first one has succeeded, so the others need not wait
    failed_ids: set[str] = field(default_factory=set)


class JobWriter:
    """Sends the writes of one job.

    Attributes:
        failed: writes that are asked for and have not succeeded.
        status_at: when the status that was asked for may be written; None: at once, or none was.
    """

    def __init__(
        self,
        key: JobKey,
        uid: str,
        slots: WriteSlots,
        on_end: Callable[["JobWriter", Ended], None],
        clock: Callable[[], float],
    ) -> None:
        self.key = key
        self.uid = uid
        self.failed: dict[str, FailedWrite] = {}
        self.status_at: float | None = None
        self._slots = slots
        self._on_end = on_end
        self._clock = clock
        self._waiting: dict[WriteKind, OrderedDict[str, JobWrite]] = {
            kind: OrderedDict() for kind in WriteKind
        }
        self._sent: dict[str, JobWrite] = {}  # on their way, by id
        self._held: set[str] = set()  # ids on their way that the last plan asked for
        self._kinds: Counter[WriteKind] = Counter()  # on their way
        self._batches: dict[str, _Batch] = {}  # by key
        self._statuses: RateLimit[str] = RateLimit(STATUSES_PER_SECOND, STATUS_BURST)
        self._reasons: RateLimit[str] = RateLimit(EVENTS_PER_SECOND, EVENT_BURST, MAX_EVENTS)
        self._unsent: Counter[str] = Counter()  # events, by key

    @property
    def namespace(self) -> str:
        return self.key.namespace

    @property
    def pods_being_deleted(self) -> frozenset[str]:
        """UIDs, also of those whose deletion waits."""
        sent = (id_ for id_, write in self._sent.items() if write.kind is WriteKind.DELETES)
        return frozenset((*self._waiting[WriteKind.DELETES], *sent))

    @property
    def pods_being_created(self) -> dict[int, str]:
        """By the pods' indexes, the Workloads whose quota they use."""
        return dict(write.creates for write in self._sent.values() if write.creates is not None)

    @property
    def quota_being_returned(self) -> dict[str, int]:
        """By the names of Workloads, for how many pods they keep quota."""
        return dict(write.keeps for write in self._sent.values() if write.keeps is not None)

    def ask(self, writes: Sequence[JobWrite], failed: FailedWrites) -> None:
        """Replaces the writes that wait, except deletions of pods, and events."""
        now, self.status_at = self._clock(), None
        self._batches = {key: batch for key, batch in self._batches.items() if batch.sent}
        for kind in self._waiting.keys() - KEPT:
            self._waiting[kind].clear()
        kept = (write for kind in KEPT for write in self._waiting[kind].values())
        asked = {*(write.key for write in (*writes, *kept)), *self._batches}
        self.failed = {key: failure for key, failure in failed.items() if key in asked}
        self._held = {write.id for write in writes if write.id in self._sent}
        for write in writes:
            self._add(write, now)
        self._slots.offer(self)

    def add_event(self, write: JobWrite) -> None:
        self._add(write, self._clock())
        self._slots.offer(self)

    def _add(self, write: JobWrite, now: float) -> None:
        if write.kind is WriteKind.EVENTS:
            self._unsent[write.key] += 1
            if self._reasons.admit(write.key, now):
                return
            write = replace(write, send=partial(write.send, self._unsent.pop(write.key)))
        elif not self._is_due(write, now):
            return
        elif write.kind is WriteKind.STATUS and (
            wait := self._statuses.wait_seconds(self.uid, now)
        ):
            self.status_at = now + wait
            return
        waiting = self._waiting[write.kind]
        waiting[write.id] = write
        if write.kind is WriteKind.EVENTS and len(waiting) > MAX_EVENTS:
            waiting.popitem(last=False)

    def drop(self) -> None:
        """The job is gone: only events are still sent."""
        self._waiting[WriteKind.DELETES].clear()
        self.ask((), {})

    def _is_due(self, write: JobWrite, now: float) -> bool:
        if write.id in self._sent:
            return False
        before = self.failed.get(write.key)
        if before is None or now >= before.retry_at:
            return True
        # Trouble with one of many does not keep the others waiting.
        batch = self._batches.get(write.key)
        return batch is not None and batch.open and write.id not in batch.failed_ids

    def has_write(self) -> bool:
        return self._next_kind() is not None

    def next_write(self) -> Coroutine[Any, Any, ClusterError | None]:
        kind = self._next_kind()
        assert kind is not None  # the slots have asked before
        _, write = self._waiting[kind].popitem(last=False)
        if kind is WriteKind.STATUS:
            self._statuses.charge(self.uid, 1.0, self._clock())
        self._sent[write.id] = write
        self._kinds[kind] += 1
        self._batches.setdefault(write.key, _Batch()).sent += 1
        return self._send(write)

    def _next_kind(self) -> WriteKind | None:
        waiting = (kind for kind, writes in self._waiting.items() if writes)
        return next((kind for kind in waiting if self._may_send(kind)), None)

    def _may_send(self, kind: WriteKind) -> bool:
        if kind is WriteKind.EVENTS:
            return not self._kinds[kind]
        if kind is WriteKind.PODS and (CLAIMS in self.failed or self._is_busy(BEFORE_PODS)):
            return False
        if kind not in ONE_FIRST:
            return True
        batch = self._batches.get(next(iter(self._waiting[kind].values())).key)
        return batch is None or batch.open or not batch.sent

    def _is_busy(self, kinds: Collection[WriteKind]) -> bool:
        return any(self._waiting[kind] or self._kinds[kind] for kind in kinds)

    async def _send(self, write: JobWrite) -> ClusterError | None:
        batch, error = self._batches[write.key], None
        try:
            async with asyncio.timeout(MAX_WRITE_SECONDS):
                await write.send()
        except ClusterError as found:
            error = found
        except TimeoutError:
            words = f"a write took longer than {MAX_WRITE_SECONDS:.0f} s"
            error = ClusterError(504, f"{words}, perhaps because of slow webhooks")
        except Exception as fault:
            logger.exception("cannot write", extra={"job": str(self.key), "write": write.id})
            if isinstance(fault, UnbuildableError):
                words = str(fault)
                error = ClusterError(422, words, judgement=Judgement.MALFORMED, words=words)
            else:
                error = ClusterError(500, f"the operator cannot make this request: {fault!r}")
        finally:
            del self._sent[write.id]
            self._kinds[write.kind] -= 1
            batch.sent -= 1
        before, news = self.failed.get(write.key), False
        if error is not None:
            news = self._note_failure(write, error, batch)
        else:
            batch.failed_ids.discard(write.id)
            if not batch.failed_ids:
                batch.open = True
                self.failed.pop(write.key, None)
        if not batch.sent and not (write.kind in ONE_FIRST and self._waiting[write.kind]):
            del self._batches[write.key]
        alike = POD_KINDS if write.kind in POD_KINDS else (write.kind,)
        rest = (write.leads_on or write.id in self._held) and not self._is_busy(alike)
        changed = self.failed.get(write.key) is not before
        self._on_end(self, Ended(write, error, news, changed, rest))
        self._slots.offer(self)
        return error

    def _note_failure(self, write: JobWrite, error: ClusterError, batch: _Batch) -> bool:
        if write.kind is WriteKind.EVENTS:
            return True
        before = self.failed.get(write.key)
        again = before is None or not batch.failed_ids or write.id in batch.failed_ids
        batch.failed_ids.add(write.id)
        refused = error.judgement is not Judgement.TROUBLE
        known = {failure.words for failure in self.failed.values()}
        news = error.words not in known if refused else again
        # Writes that were sent together fail once, but a refusal says more than trouble beside it.
        if before is None or again or (refused and not before.lasting):
            self.failed[write.key] = note_failure(
                before,
                error.judgement,
                error.words,
                self._clock(),
                refused_seconds=write.refused_seconds,
                retry_after_seconds=error.retry_after_seconds,
            )
        if write.kind in ONE_FIRST and (refused or not batch.open):
            batch.open = False
            self._waiting[write.kind].clear()
        if error.judgement is Judgement.MALFORMED or write.kind is WriteKind.POD_GROUP:
            self._waiting[WriteKind.PODS].clear()
        return news
