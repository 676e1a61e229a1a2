"""How a pod's workers get to the next round: in their processes, or started again.

The other end is `agent_link`.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from elastic_pytorch.failures.failure import MAX_MESSAGE_BYTES
from elastic_pytorch.pod.messages import CHANGE, COOPERATES, GO, LEFT, LOST_PEER, PARKED, Message
from elastic_pytorch.pod.server import PodServer

# For a step boundary that is not urgent: two steps, and a checkpoint that takes minutes.
UNHURRIED_SECONDS = 300.0


class Way(Enum):
    WAIT = auto()
    KEEP_PROCESSES = auto()
    RESTART = auto()


@dataclass(frozen=True, slots=True)
class WorkerReport:
    cooperates: bool = False  # it stops at a step boundary when the group changes
    in_process: bool = False  # it can join another group without a restart
    parked: bool = False  # it has stopped at a boundary
    left: bool = False  # it has left its group after that
    lost_peer: str = ""  # the error of the collective that stopped it; empty: none

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing left to do in this round except to leave its group."""
        return self.parked or self.left or bool(self.lost_peer)

    @property
    def is_free(self) -> bool:
        return self.left or bool(self.lost_peer)


def choose_way(
    workers: Sequence[WorkerReport],
    *,
    newer: bool,
    orderly: bool,
    waited_seconds: float,
    idle_seconds: float,
    boundary_seconds: float,
    rest_seconds: float,
) -> Way:
    """Decides how a pod's workers leave their round.

    In an orderly round all members are alive, so they reach a step boundary together. Workers that
    can continue without a restart have `rest_seconds` to notice a lost peer, or to leave their
    group.
    """
    if all(worker.is_idle for worker in workers):
        if not all(worker.in_process for worker in workers):
            return Way.RESTART
        if not all(worker.is_free for worker in workers):
            return Way.WAIT if idle_seconds < rest_seconds else Way.RESTART
        return Way.KEEP_PROCESSES if newer else Way.WAIT
    if newer and orderly and all(worker.cooperates for worker in workers):
        return Way.WAIT if waited_seconds < boundary_seconds else Way.RESTART
    if all(worker.in_process for worker in workers):
        return Way.WAIT if waited_seconds < rest_seconds else Way.RESTART
    return Way.RESTART


class Handover:
    def __init__(
        self,
        server: PodServer,
        on_news: Callable[[], None],
        boundary_seconds: float,
        rest_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._on_news = on_news
        self._boundary_seconds = boundary_seconds
        self._rest_seconds = rest_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._reports: dict[int, WorkerReport] = {}
        self._announced: Message | None = None
        self._since = 0.0
        self._idle_since: float | None = None
        self._urgent_since: float | None = None
        server.on_message = self._receive

    def start_round(self) -> None:
        with self._lock:
            self._reports = {}
        self._forget_change()

    def way(
        self,
        pids: Iterable[int],
        *,
        newer_round: int | None,
        orderly: bool,
        urgent: bool = True,
        leaves: bool = False,
    ) -> Way:
        """Chooses how living workers leave their round, and announces the change to them.

        Without a newer round, a failure has ended theirs. A change is urgent if a member must leave
        within its pod's grace period, and `leaves` means that this pod does.
        """
        now = self._clock()
        workers = self._of(pids)
        orderly = orderly and newer_round is not None
        change = {"kind": CHANGE, "round": newer_round or 0, "orderly": orderly, "leaves": leaves}
        if change != self._announced:
            if self._announced is None or (self._announced["orderly"] and not orderly):
                self._since = now
            self._announced = change
            self._server.broadcast(change)
        if urgent and self._urgent_since is None:
            self._urgent_since = now
        if not all(worker.is_idle for worker in workers):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        return choose_way(
            workers,
            newer=newer_round is not None,
            orderly=orderly,
            waited_seconds=now - self._since,
            idle_seconds=0.0 if self._idle_since is None else now - self._idle_since,
            boundary_seconds=self._boundary_limit(),
            rest_seconds=self._rest_seconds,
        )

    def all_free(self, pids: Iterable[int]) -> bool:
        return all(worker.is_free for worker in self._of(pids))

    def all_in_process(self, pids: Iterable[int]) -> bool:
        return all(worker.in_process for worker in self._of(pids))

    def lost_peers(self, pids: Mapping[int, int]) -> dict[int, str]:
        reports = zip(pids, self._of(pids.values()), strict=True)
        return {local_rank: report.lost_peer for local_rank, report in reports if report.lost_peer}

    def keep_processes(self, environments: Mapping[int, Mapping[str, str]]) -> None:
        """Workers cooperate again once they have a group."""
        with self._lock:
            self._reports = {
                pid: WorkerReport(in_process=report.in_process)
                for pid, report in self._reports.items()
            }
        self._forget_change()
        for pid, environment in environments.items():
            self._server.send(pid, {"kind": GO, "environment": dict(environment)})

    def _boundary_limit(self) -> float:
        """A change that becomes urgent gets its full time again."""
        if self._urgent_since is None:
            return max(UNHURRIED_SECONDS, self._boundary_seconds)
        return self._urgent_since - self._since + self._boundary_seconds

    def _forget_change(self) -> None:
        self._announced, self._idle_since, self._urgent_since = None, None, None
        self._server.broadcast(None)

    def _of(self, pids: Iterable[int]) -> list[WorkerReport]:
        with self._lock:
            return [self._reports.get(pid, WorkerReport()) for pid in pids]

    def _receive(self, pid: int, message: Message) -> None:
        with self._lock:
            report = self._reports.get(pid, WorkerReport())
            kind = message.get("kind")
            if kind == COOPERATES:
                in_process = message.get("inProcess") is True
                report = replace(report, cooperates=True, in_process=in_process)
            elif kind == PARKED:
                report = replace(report, parked=True)
            elif kind == LEFT:
                report = replace(report, left=True)
            elif kind == LOST_PEER:
                lost_peer = str(message.get("message") or "a peer is lost")[:MAX_MESSAGE_BYTES]
                report = replace(report, lost_peer=lost_peer)
            else:
                return
            self._reports[pid] = report
        self._on_news()
