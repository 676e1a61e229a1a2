"""How an agent talks to an operator before 0.3: one connection for heartbeats, and one for a long poll."""

import threading
import time
from collections.abc import Callable

from elastic_pytorch.operator_link.client import HEARTBEAT_TIMEOUT_SECONDS, OperatorClient
from elastic_pytorch.operator_link.http_connection import OperatorConnection
from elastic_pytorch.operator_link.retry import FIRST_RETRY_SECONDS, Retry
from elastic_pytorch.operator_link.rounds import parse_round

POLL_SECONDS = 20.0  # for which the operator holds a poll
POLL_HEAD_START_SECONDS = 0.02


class RequestLink:
    """Sends heartbeats, and keeps a poll for the newest round open.

    Args:
        client: what is to be reported, and where answers go.
    """

    def __init__(self, client: OperatorClient) -> None:
        self._client = client
        self._beats = client.connection(HEARTBEAT_TIMEOUT_SECONDS)
        self._polls = client.connection(POLL_SECONDS + 10)
        self._heard = threading.Event()  # the operator has answered the last heartbeat

    def run(self) -> None:
        """Talks to the operator for as long as the process lives, whatever the network does."""
        threading.Thread(target=self._poll_rounds, name="poll_rounds", daemon=True).start()
        client = self._client
        retry = Retry("a heartbeat", lambda: client.stopped)
        while True:
            told = client.told
            pause = _try(self._send_heartbeat, self._beats, retry)
            client.attempted = told
            if retry.failing:
                self._heard.clear()
            else:
                self._heard.set()
            if retry.asked:
                time.sleep(pause)
                continue
            # A change is sent at once, also while the operator is away: it may be back.
            client.bell.wait(pause if retry.failing else client.heartbeat_seconds)

    def _poll_rounds(self) -> None:
        client = self._client
        retry = Retry("the poll for a round", lambda: client.stopped)
        # A new leader hears thousands of agents in half the time if each asks for rounds only after its heartbeat.
        self._heard.wait()
        while client.verdict is None:
            before = time.monotonic()
            number, nudge = client.newest.number, client.nudge
            pause = _try(lambda: self._fetch(self._polls, POLL_SECONDS), self._polls, retry)
            if retry.failing:
                time.sleep(pause)
                self._heard.wait()
            elif (number, nudge) == (client.newest.number, client.nudge) and time.monotonic() - before < FIRST_RETRY_SECONDS:
                time.sleep(FIRST_RETRY_SECONDS)  # an early answer without news

    def _send_heartbeat(self) -> None:
        body = self._client.heartbeat()
        answer = self._beats.request("POST", "/v1/heartbeat", body)
        self._client.take_answer(answer, body["round"])
        if not self._client.has_news_of(answer):
            time.sleep(POLL_HEAD_START_SECONDS)  # usually the poll's answer is on its way
        if not self._client.has_news_of(answer):
            # The poll's connection may be dead without having been closed.
            self._fetch(self._beats)
            self._polls.interrupt()

    def _fetch(self, connection: OperatorConnection, hold_seconds: float = 0) -> None:
        query = f"after={self._client.newest.number}&nudge={self._client.nudge}&hold={hold_seconds:g}&brief=1"
        self._client.take_round(parse_round(connection.request("GET", f"/v1/round?{query}")))


def _try(request: Callable[[], None], connection: OperatorConnection, retry: Retry) -> float:
    """Returns the seconds to wait, if the request has failed."""
    try:
        request()
    except Exception as error:  # nothing that comes from the network may end the agent
        return retry.fail(error, connection.patience)
    retry.succeed()
    return 0.0
