"""The agent's end of the protocol with the operator (docs/protocol.md).

Two daemon threads: one sends heartbeats, one keeps a long poll for the newest round open. They continue whatever the network does. The
main thread only reads what is known, and never waits for the operator.
"""

import contextlib
import queue
import random
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from elastic_pytorch.failures.failure import Failure
from elastic_pytorch.log import logger
from elastic_pytorch.operator_link.http_connection import OperatorConnection, RefusedError
from elastic_pytorch.operator_link.rounds import CheckRequest, Round, RoundError, Verdict, integer, parse_round

POLL_SECONDS = 20.0  # for which the operator holds a poll
HEARTBEAT_TIMEOUT_SECONDS = 5.0
FIRST_RETRY_SECONDS = 0.2
FIRST_RETRIES_SECONDS = 10.0  # longer than another operator takes to become the leader when the leader's node has died
LATER_RETRY_SECONDS = 2.0
MAX_HEARTBEAT_SECONDS = 60.0
LEAVE_SECONDS = 2.0  # unless the operator sends a value
MAX_LEAVE_SECONDS = 86400.0
POLL_HEAD_START_SECONDS = 0.02

State = Literal["ready", "running", "stopping", "failed", "succeeded"]


@dataclass(frozen=True, slots=True)
class ReportedState:
    """What the agent reports of itself in a heartbeat. `leaving` is kept apart: it is set by a signal handler."""

    state: State = "ready"
    round: int = 0
    rank: int = 0
    world_size: int = 0
    restarts: int = 0
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """What was measured of this pod's node.

    Attributes:
        number: of the check; 0: none has been made.
        matmul_seconds: of the slowest process's matrix products; None: not measured.
        all_reduce_seconds: of the slowest process's all-reduces; None: not measured.
        error: what failed first; empty: nothing.
    """

    number: int = 0
    matmul_seconds: float | None = None
    all_reduce_seconds: float | None = None
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """As heartbeats have it (docs/protocol.md)."""
        if not self.number:
            return {"number": 0}
        return {
            "number": self.number,
            "matmulSeconds": self.matmul_seconds,
            "allReduceSeconds": self.all_reduce_seconds,
            "error": self.error,
        }


class OperatorClient:
    """The operator's last answers, and what is reported to it.

    Args:
        connection: makes a connection to the operator.
        local_world_size: processes per pod.
        port: returns the port that is reserved for the next store.
        progress: returns the progress of training, as JSON.
        on_news: called from a thread of the client when there is a newer round or a verdict.
        on_dump: called from a thread of the client when the operator wants the workers' stacks.

    Attributes:
        local_world_size: the same.
        newest: the newest round that is known; its number is 0 before the first.
        verdict: how the job has ended, None while it goes on.
        check: what is to be measured of this pod's node; None: nothing.
        leave_seconds: how long workers train on after SIGTERM, for the operator to declare a round without them.
        leaving: set by the signal handler: from then on heartbeats report `leaving`.
    """

    def __init__(
        self,
        connection: Callable[[float], OperatorConnection],
        *,
        local_world_size: int,
        port: Callable[[], int],
        progress: Callable[[], Any],
        on_news: Callable[[], None],
        on_dump: Callable[[], None],
    ) -> None:
        self.newest = Round(0)
        self.verdict: Verdict | None = None
        self.check: CheckRequest | None = None
        self.leave_seconds = LEAVE_SECONDS
        self.leaving = False
        self._peer_stopped_in = 0
        self._stopped = False
        self._worker = ""
        self._nudge = 0
        self._heartbeat_seconds = 1.0
        self._reported = ReportedState()
        self._checked = NodeCheck()
        self._told = 0  # counts the changes to report
        self._attempted = 0  # the last of them that a heartbeat was sent for, whether or not it arrived
        self._incarnation = secrets.token_hex(8)
        self.local_world_size = local_world_size
        self._port = port
        self._progress = progress
        self._on_news = on_news
        self._on_dump = on_dump
        self._dump: int | None = None
        self._lock = threading.Lock()
        self._heartbeats: queue.SimpleQueue[None] = queue.SimpleQueue()  # its put() is safe in a signal handler
        self._heartbeat_connection = connection(HEARTBEAT_TIMEOUT_SECONDS)
        self._poll_connection = connection(POLL_SECONDS + 10)
        self._heard = threading.Event()  # the operator has answered the last heartbeat

    @property
    def reported(self) -> ReportedState:
        """What the heartbeats report."""
        return self._reported

    @property
    def running_round(self) -> int:
        """The round whose workers run here, 0 while none do."""
        return self._reported.round if self._reported.state == "running" else 0

    def peer_stopped(self, round_number: int) -> bool:
        """Whether the operator has reported that another member of a round has stopped its workers."""
        return round_number > 0 and self._peer_stopped_in == round_number

    @property
    def worker(self) -> str:
        """The name by which the operator knows this agent; empty until the operator has sent it."""
        return self._worker

    def start(self) -> None:
        """Starts both threads."""
        for target in (self._send_heartbeats, self._poll_rounds):
            threading.Thread(target=target, name=target.__name__.strip("_"), daemon=True).start()

    def tell(self, **changes: Any) -> None:
        """Changes what the heartbeats report, and sends one at once. From the main thread only."""
        self._reported = replace(self._reported, **changes)
        self._told += 1
        self._heartbeats.put(None)

    def tell_check(self, check: NodeCheck) -> None:
        """Reports what was measured of this pod's node. From any thread."""
        self._checked = check
        self._heartbeats.put(None)

    def stop(self) -> None:
        """Stops logging connection errors; the process is exiting."""
        self._stopped = True

    def speak(self) -> None:
        """Sends a heartbeat at once. From any thread."""
        self._heartbeats.put(None)

    def leave(self) -> None:
        """Reports `leaving` from now on. May be called from a signal handler."""
        self.leaving = True
        self._told += 1
        self._heartbeats.put(None)

    def flush(self, seconds: float) -> None:
        """Waits until a heartbeat has been sent, or has failed, for the last change, but at most the given seconds."""
        deadline = time.monotonic() + seconds
        while self._attempted < self._told and time.monotonic() < deadline:
            time.sleep(0.005)

    def _send_heartbeats(self) -> None:
        retry = _Retry("a heartbeat", lambda: self._stopped)
        while True:
            told = self._told
            pause = retry.run(self._heartbeat, self._heartbeat_connection)
            self._attempted = told
            if retry.failing:
                self._heard.clear()
            else:
                self._heard.set()
            if retry.asked:
                time.sleep(pause)
                continue
            # A change is sent at once, also while the operator is away: it may be back.
            with contextlib.suppress(queue.Empty):
                self._heartbeats.get(timeout=pause if retry.failing else self._heartbeat_seconds)
                while True:
                    self._heartbeats.get_nowait()

    def _poll_rounds(self) -> None:
        retry = _Retry("the poll for a round", lambda: self._stopped)
        # A new leader hears thousands of agents in half the time if each asks for rounds only after its heartbeat.
        self._heard.wait()
        while self.verdict is None:
            before = time.monotonic()
            number, nudge = self.newest.number, self._nudge
            pause = retry.run(self._poll, self._poll_connection)
            if retry.failing:
                time.sleep(pause)
                self._heard.wait()
            elif (number, nudge) == (self.newest.number, self._nudge) and time.monotonic() - before < FIRST_RETRY_SECONDS:
                time.sleep(FIRST_RETRY_SECONDS)  # an early answer without news

    def _heartbeat(self, connection: OperatorConnection) -> None:
        body = self._body()
        answer = connection.request("POST", "/v1/heartbeat", body)
        if not isinstance(answer, dict):
            raise RoundError("the answer is not an object")
        if answer.get("peerStopped") is True:
            self._peer_stopped_in = body["round"]
        seconds = answer.get("heartbeatSeconds")
        if isinstance(seconds, (int, float)) and 0.05 <= seconds <= MAX_HEARTBEAT_SECONDS:
            self._heartbeat_seconds = float(seconds)
        leave_seconds = answer.get("leaveSeconds")
        if isinstance(leave_seconds, (int, float)) and 0 <= leave_seconds <= MAX_LEAVE_SECONDS:
            self.leave_seconds = float(leave_seconds)
        newest = integer(answer.get("round"), "round", 0)
        nudge = integer(answer.get("nudge", 0), "nudge", 0)
        if not self._has(newest, nudge):
            time.sleep(POLL_HEAD_START_SECONDS)  # usually the poll's answer is on its way
        if not self._has(newest, nudge):
            # The poll's connection may be dead without having been closed.
            self._fetch(connection)
            self._poll_connection.interrupt()

    def _has(self, newest: int, nudge: int) -> bool:
        return newest <= self.newest.number and nudge == self._nudge

    def _poll(self, connection: OperatorConnection) -> None:
        self._fetch(connection, POLL_SECONDS)

    def _fetch(self, connection: OperatorConnection, hold_seconds: float = 0) -> None:
        query = f"after={self.newest.number}&nudge={self._nudge}&hold={hold_seconds:g}&brief=1"
        self._take(parse_round(connection.request("GET", f"/v1/round?{query}")))

    def _take(self, answer: Round) -> None:
        with self._lock:
            nudged = answer.nudge != self._nudge
            newer = answer.number > self.newest.number
            ended = answer.verdict is not None and self.verdict is None
            # A request from before this agent started, or from an earlier operator, is not meant for it.
            dump = self._dump is not None and answer.dump > self._dump
            self._dump = answer.dump
            self._nudge = answer.nudge
            self._worker = answer.worker or self._worker
            other_check = answer.check != self.check
            self.check = answer.check
            if newer:
                self.newest = answer
            if ended:
                self.verdict = answer.verdict
        if nudged:
            self._heartbeats.put(None)
        if newer or ended or other_check:
            self._on_news()
        if dump:
            self._on_dump()

    def _body(self) -> dict[str, Any]:
        reported = self._reported
        # That the work is done matters more to the operator than that this agent leaves.
        state = "leaving" if self.leaving and reported.state != "succeeded" else reported.state
        return {
            "incarnation": self._incarnation,
            "state": state,
            "round": reported.round,
            "rank": reported.rank,
            "newest": self.newest.number,
            "worldSize": reported.world_size,
            "localWorldSize": self.local_world_size,
            "port": self._port(),
            "restarts": reported.restarts,
            "progress": self._progress(),
            "failure": reported.failure.to_json() if reported.failure and state == "failed" else None,
            "check": self._checked.to_json(),
        }


class _Retry:
    """Sends a request to the operator, and computes how long to wait before the next try.

    Args:
        what: what is tried, for the log.
        quiet: whether to log nothing.

    Attributes:
        failing: the last try failed.
        asked: the operator itself asked for the pause.
    """

    def __init__(self, what: str, quiet: Callable[[], bool]) -> None:
        self.failing = False
        self.asked = False
        self._what = what
        self._quiet = quiet
        self._failing_since = 0.0
        self._logged = ""

    def run(self, request: Callable[[OperatorConnection], None], connection: OperatorConnection) -> float:
        """Tries once. Returns the seconds to wait, if it failed."""
        self.asked = False
        try:
            request(connection)
        except Exception as error:  # nothing that comes from the network may end the agent
            if not self.failing:
                self._failing_since = time.monotonic()
            self.failing = True
            problem = f"{self._what} failed: {type(error).__name__}: {error}"
            if problem != self._logged and not self._quiet():
                self._logged = problem
                logger.warning("%s; training goes on, trying again", problem)
            if isinstance(error, RefusedError) and error.retry_after is not None:
                self.asked = True
                return error.retry_after
            # At random, so that agents that have failed together do not come again together.
            return self._pause(error, connection.patience) * random.uniform(0.5, 1.5)
        if self.failing:
            logger.info("%s succeeded again", self._what)
        self.failing = False
        self._logged = ""
        return 0.0

    def _pause(self, error: Exception, patience: int) -> float:
        if patience > 1:
            return FIRST_RETRY_SECONDS * patience**2  # the operator has more to do than it can
        if isinstance(error, TimeoutError):
            return FIRST_RETRY_SECONDS  # it has waited enough: the server that did not answer may have died
        if not isinstance(error, OSError):
            return LATER_RETRY_SECONDS  # it answers, but not sensibly
        first = time.monotonic() - self._failing_since < FIRST_RETRIES_SECONDS
        return FIRST_RETRY_SECONDS if first else LATER_RETRY_SECONDS
