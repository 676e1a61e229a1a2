"""An agent's reports to the operator, and its answers (docs/internals/protocol.md).

The main thread never waits for the operator: the thread of `start_link` communicates.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from elastic_pytorch.failures.failure import Failure
from elastic_pytorch.operator_link.http_connection import OperatorConnection
from elastic_pytorch.operator_link.rounds import Round, RoundError, Verdict, mapping, number
from elastic_pytorch.wakeup import Wakeup

MAX_HEARTBEAT_SECONDS = 60.0
LEAVE_SECONDS = 2.0  # unless the operator sends a value
MAX_LEAVE_SECONDS = 86400.0

State = Literal["preparing", "ready", "running", "stopping", "failed", "succeeded"]


@dataclass(frozen=True, slots=True)
class NotedPlaces:
    read_at: float  # monotonic seconds
    places: Sequence[Mapping[str, str]]  # by local rank

    def to_json(self) -> dict[str, Any]:
        return {"ageSeconds": time.monotonic() - self.read_at, "byLocalRank": list(self.places)}


@dataclass(frozen=True, slots=True)
class ReportedState:
    state: State = "ready"
    round: int = 0
    rank: int = 0
    world_size: int = 0
    restarts: int = 0
    failure: Failure | None = None
    # The agent's torchrun has spent its own budget of failures, and ends.
    gives_up: bool = False
    places: NotedPlaces | None = None  # of the main threads in this round


class OperatorClient:
    """The operator's last answers, and the reports to it.

    `progress` returns JSON, and `port` the next store's port.
    """

    def __init__(
        self,
        connection: OperatorConnection,
        *,
        local_world_size: int,
        port: Callable[[], int],
        progress: Callable[[], Any],
    ) -> None:
        # The link's thread calls them: for a newer round or a verdict, to request stacks, and for
        # each heartbeat.
        self.on_news: Callable[[], None] = lambda: None
        self.on_dump: Callable[[], None] = lambda: None
        self.keeps_processes: Callable[[], bool] = lambda: False
        self.newest = Round(0)  # 0: none
        self.verdict: Verdict | None = None
        # How long workers train on after SIGTERM, so that the operator can declare a round without
        # them.
        self.leave_seconds = LEAVE_SECONDS
        self.leaving = False  # set by a signal handler
        self.nudge = 0
        self.heartbeat_seconds = 1.0
        self.asked = False  # for a heartbeat at once
        self.wakeup = Wakeup()
        self.changes = 0  # to report, so far
        # The last change for which a heartbeat was sent, whether or not it arrived.
        self.attempted = 0
        self.stopped = False  # set when the process exits: nothing more is logged
        self.connection = connection
        self.reported = ReportedState()
        self._peer_stopped_in = 0
        self._incarnation = secrets.token_hex(8)
        self._local_world_size = local_world_size
        self._port = port
        self._progress = progress
        self._dump: int | None = None

    @property
    def running_round(self) -> int:
        """The round whose workers run here; 0: none do."""
        return self.reported.round if self.reported.state == "running" else 0

    def peer_stopped(self, round_number: int) -> bool:
        """Whether another member of a round has stopped its workers."""
        return round_number > 0 and self._peer_stopped_in == round_number

    def report(self, **changes: Any) -> None:
        """Only for the main thread."""
        self.reported = replace(self.reported, **changes)
        self.changes += 1
        self.send_heartbeat()

    def send_heartbeat(self) -> None:
        """At once, from any thread or signal handler."""
        self.asked = True
        self.wakeup.ring()

    def leave(self) -> None:
        """Reports `leaving` from now on. Safe in a signal handler."""
        self.leaving = True
        self.changes += 1
        self.send_heartbeat()

    def flush(self, seconds: float) -> None:
        """Waits until a heartbeat with the last change was sent, or has failed."""
        deadline = time.monotonic() + seconds
        while self.attempted < self.changes and time.monotonic() < deadline:
            time.sleep(0.005)

    def take_answer(self, answer: object, round_number: int) -> None:
        fields = mapping(answer, "the answer")
        seconds = number(
            fields.get("heartbeatSeconds", self.heartbeat_seconds),
            "heartbeatSeconds",
            0.05,
            MAX_HEARTBEAT_SECONDS,
        )
        leave_seconds = number(
            fields.get("leaveSeconds", self.leave_seconds), "leaveSeconds", 0, MAX_LEAVE_SECONDS
        )
        peer_stopped = fields.get("peerStopped", False)
        if not isinstance(peer_stopped, bool):
            raise RoundError("peerStopped is not true or false")
        self.heartbeat_seconds, self.leave_seconds = seconds, leave_seconds
        if peer_stopped:
            self._peer_stopped_in = round_number

    def take_round(self, answer: Round) -> None:
        nudged = answer.nudge != self.nudge
        newer = answer.number > self.newest.number
        ended = answer.verdict is not None and self.verdict is None
        # A request from before this agent started, or from an earlier operator, is for others.
        dump = self._dump is not None and answer.dump > self._dump
        self._dump = answer.dump
        self.nudge = answer.nudge
        if newer:
            self.newest = answer
        if ended:
            self.verdict = answer.verdict
        if nudged:
            self.send_heartbeat()
        if newer or ended:
            self.on_news()
        if dump:
            self.on_dump()

    def heartbeat(self) -> dict[str, Any]:
        self.asked = False  # from here on, a change asks again
        reported = self.reported  # the main thread may replace it meanwhile
        # The operator needs to know that the work is done, more than that this agent leaves.
        state = "leaving" if self.leaving and reported.state != "succeeded" else reported.state
        failure = reported.failure if state == "failed" else None
        return {
            "incarnation": self._incarnation,
            "state": state,
            "round": reported.round,
            "rank": reported.rank,
            "newest": self.newest.number,
            "worldSize": reported.world_size,
            "localWorldSize": self._local_world_size,
            "port": self._port(),
            "restarts": reported.restarts,
            "progress": self._progress(),
            "failure": failure.to_json() if failure else None,
            "places": places.to_json() if (places := reported.places) else None,
            "givesUp": reported.gives_up,
            "keepsProcesses": self.keeps_processes(),
        }
