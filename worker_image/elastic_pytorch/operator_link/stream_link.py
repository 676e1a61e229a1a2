"""The agent's thread for the operator: heartbeats, their answers, and rounds between them."""

import http.client
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from elastic_pytorch.operator_link.client import OperatorClient
from elastic_pytorch.operator_link.retry import RefusedError, Retry
from elastic_pytorch.operator_link.rounds import RoundError, parse_round
from elastic_pytorch.operator_link.stream import OperatorStream, refusal_of

PATH = "/v1/agent"
ANSWER_SECONDS = 5.0  # the longest wait for the answer to a heartbeat
SHORT_SECONDS = 1.0  # a stream that ends sooner has failed

Answer = dict[str, Any] | RefusedError  # to a heartbeat: its fields, or that it came too early


def start_link(client: OperatorClient) -> None:
    threading.Thread(target=StreamLink(client).run, name="operator_link", daemon=True).start()


class StreamLink:
    def __init__(self, client: OperatorClient, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._client = client
        self._answer_seconds = answer_seconds
        self._connection = client.connection
        self._retry = Retry(lambda: client.stopped)

    def run(self) -> None:
        client = self._client
        while True:
            changes, began = client.changes, time.monotonic()
            try:
                self._converse()
            except Exception as error:  # the agent survives whatever the network does
                failure = error
            client.attempted = max(changes, client.attempted)
            if (
                isinstance(failure, ConnectionError)
                and not self._retry.failing
                and time.monotonic() > began + SHORT_SECONDS
            ):
                continue  # the operator has ended, and another may lead by now
            pause = self._retry.fail(failure, self._connection.patience)
            if self._retry.asked:
                time.sleep(pause)
            else:
                client.wakeup.wait(pause)  # sends a change at once: the operator may be back

    def _converse(self) -> None:
        client = self._client
        with closing(self._connection.open_stream(PATH)) as stream:
            while True:
                changes, body = client.changes, client.heartbeat()
                try:
                    stream.send(body, self._connection.token())
                    answer = self._await_answer(stream)
                finally:
                    client.attempted = changes
                if isinstance(answer, RefusedError):
                    self._take_news(stream, answer.retry_after or 0.0, lambda: False)
                    continue
                client.take_answer(answer, body["round"])
                self._connection.patience = 1
                self._retry.succeed()
                self._take_news(stream, client.heartbeat_seconds, lambda: client.asked)

    def _await_answer(self, stream: OperatorStream) -> Answer:
        deadline = time.monotonic() + self._connection.patience * self._answer_seconds
        while (left := deadline - time.monotonic()) > 0:
            if answers := self._receive(stream, left):
                return answers[-1]
        self._connection.wait_longer()
        raise TimeoutError("a heartbeat was not answered")

    def _take_news(
        self, stream: OperatorStream, seconds: float, enough: Callable[[], bool]
    ) -> None:
        until = time.monotonic() + seconds
        while not enough() and (left := until - time.monotonic()) > 0:
            self._receive(stream, left)

    def _receive(self, stream: OperatorStream, seconds: float) -> list[Answer]:
        """Waits for lines or a request for a heartbeat; takes in rounds, and returns answers."""
        if stream.fileno() not in self._client.wakeup.wait(seconds, [stream.fileno()]):
            return []
        answers: list[Answer] = []
        for line in stream.receive():
            if not isinstance(line, dict):
                raise RoundError("a line is not an object")
            for kind, fields in line.items():
                if kind == "round":
                    self._client.take_round(parse_round(fields))
                elif kind == "heartbeat":
                    answers.append(fields)
                elif kind == "refused":
                    refusal = refusal_of(fields)
                    if refusal.status != http.client.TOO_MANY_REQUESTS:
                        raise refusal
                    answers.append(refusal)
        return answers
