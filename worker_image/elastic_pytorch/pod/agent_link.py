"""A worker's link to its agent, for changes of the group."""

import contextlib
import os
import signal
import time
from functools import cache
from typing import NoReturn

from elastic_pytorch.pod.client import PodClient
from elastic_pytorch.pod.messages import (
    CHANGE,
    COOPERATES,
    GO,
    LEFT,
    LOCAL_SOCKET,
    LOST_PEER,
    PARKED,
    Message,
)
from elastic_pytorch.pod.planned_stop import script_end

ANNOUNCED_SECONDS = 5.0  # from one agent's announcement of a change to the last one's
CHECK_SECONDS = 60.0  # between two checks that the agent is still there
MAX_MESSAGE_CHARACTERS = 4000


class AgentLink:
    def __init__(self, client: PodClient) -> None:
        self._client = client
        self._wanted = False
        self._leaves: bool | None = None  # None: no change is announced

    def wanted(self) -> bool:
        """Whether the group must stop at a step boundary; takes microseconds."""
        for message in self._client.messages():
            self._take(message)
        return self._wanted

    def leaves_group(self) -> bool:
        """Whether this pod is not in the next group; called after the stop.

        All ranks stop when the first one has learned of the change, so this waits for this pod's
        own announcement. Without it in time, the pod counts as leaving: a peer has the same state.
        """
        deadline = time.monotonic() + ANNOUNCED_SECONDS
        self.wanted()
        while self._leaves is None and (left := deadline - time.monotonic()) > 0:
            if (message := self._client.wait_message(left)) is None:
                break
            self._take(message)
        return self._leaves is not False

    def cooperate(self, *, in_process: bool) -> None:
        self._client.send({"kind": COOPERATES, "inProcess": in_process})

    def stop_at_boundary(self) -> None:
        """Reports a stop after a step that all ranks have committed."""
        self._client.send({"kind": PARKED})

    def stop_process(self) -> NoReturn:
        """Ends this process after a step that all workers have saved.

        Raises:
            PlannedStop: the script must end; its runner then waits for the agent's SIGTERM.
            ConnectionError: the agent is gone.
        """
        with contextlib.suppress(ValueError):  # not the main thread
            # All is saved: a handler that would save has nothing to do.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        script_end.begin(self.stop_at_boundary, self._wait_for_end)

    def _wait_for_end(self) -> NoReturn:
        while True:
            self.wait_for_go()

    def leave(self) -> None:
        self._client.send({"kind": LEFT})

    def lose_peer(self, message: str) -> None:
        """Reports that this worker is healthy, but can only leave its group."""
        self._client.send({"kind": LOST_PEER, "message": message[:MAX_MESSAGE_CHARACTERS]})

    def wait_for_go(self) -> dict[str, str]:
        """Waits for the next group's variables; raises ConnectionError if the agent is gone."""
        while True:
            message = self._client.wait_message(CHECK_SECONDS)
            if message is None:
                if not self._client.connected():
                    raise ConnectionError("the agent is gone, and has not said how to go on")
                continue
            self._take(message)
            environment = message.get("environment")
            if message.get("kind") == GO and isinstance(environment, dict):
                return {str(name): str(value) for name, value in environment.items()}

    def _take(self, message: Message) -> None:
        if message.get("kind") == CHANGE:
            self._wanted = bool(message.get("orderly"))
            self._leaves = bool(message.get("leaves")) if message.get("round") else None
        elif message.get("kind") == GO:
            self._wanted, self._leaves = False, None


def pod_client() -> PodClient:
    return _client_of(os.getpid())


def current() -> AgentLink | None:
    """Returns None where no agent handles changes of the group."""
    return _link_of(os.getpid()) if os.environ.get(LOCAL_SOCKET) else None


# By the process's id: a fork has its own.
@cache
def _client_of(_process: int) -> PodClient:
    return PodClient.connect()


@cache
def _link_of(process: int) -> AgentLink:
    return AgentLink(_client_of(process))
