"""A worker's link to its agent, for changes of the group."""

import contextlib
import os
import signal
import time
from typing import NoReturn, Protocol

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

ANNOUNCED_SECONDS = 5.0  # from when one agent has announced a change to when all have
CHECK_SECONDS = 60.0  # from one check whether the agent is still there to the next
MAX_MESSAGE_CHARACTERS = 4000


class Client(Protocol):
    def messages(self) -> list[Message]: ...

    def wait_message(self, timeout_seconds: float) -> Message | None:
        """Returns the next message; None: the time is over."""

    def connected(self) -> bool:
        """Whether the agent is there, as far as is known."""

    def send(self, message: Message) -> None: ...


class AgentLink:
    """What the agent announces of a change of the group, and what is reported to it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._wanted = False
        self._leaves: bool | None = None  # None: no change has been announced

    def wanted(self) -> bool:
        """Whether the group must stop at a step boundary, as far as this worker knows.

        Takes microseconds.
        """
        for message in self._client.messages():
            self._take(message)
        return self._wanted

    def leaves_group(self) -> bool:
        """Returns whether this pod is not in the next group, as far as the agent knew when it announced the change.

        To be called when the group has stopped for that. The ranks hear of it at different times,
        and stop together when the first one has: so this waits for the agent. A pod whose agent
        says nothing in time counts as one that leaves, as a peer then has what it has.
        """
        deadline = time.monotonic() + ANNOUNCED_SECONDS
        self.wanted()
        while self._leaves is None and (left := deadline - time.monotonic()) > 0:
            if (message := self._client.wait_message(left)) is None:
                break
            self._take(message)
        return self._leaves is not False

    def cooperate(self, *, in_process: bool) -> None:
        """Reports that this worker stops at step boundaries, and whether it can join another group without a restart."""
        self._client.send({"kind": COOPERATES, "inProcess": in_process})

    def stop_at_boundary(self, step: int) -> None:
        """Reports that this worker has committed a step, as all others have, and now only leaves its group."""
        self._client.send({"kind": PARKED, "step": step})

    def stop_process(self, step: int) -> NoReturn:
        """Ends this process after a step that all workers have saved: its successor goes on from there.

        Raises:
            PlannedStop: the script is to end; what runs it then waits until the agent ends this
                process.
            ConnectionError: the agent is gone.
        """
        with contextlib.suppress(ValueError):  # not the main thread
            # All is saved: a handler that would save something has nothing to do.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        script_end.begin(lambda: self.stop_at_boundary(step), self._wait_for_end)

    def _wait_for_end(self) -> NoReturn:
        while True:
            self.wait_for_go()

    def leave(self) -> None:
        """Reports that nothing of the group is left in this worker, which can join another one now."""
        self._client.send({"kind": LEFT})

    def lose_peer(self, message: str) -> None:
        """Reports that this worker is healthy but has lost a peer, with the error, so it can do nothing more in this group."""
        self._client.send({"kind": LOST_PEER, "message": message[:MAX_MESSAGE_CHARACTERS]})

    def wait_for_go(self) -> dict[str, str]:
        """Waits for the next group, however long that takes, or for the end of this process.

        Returns:
            The variables of the environment that describe the group.

        Raises:
            ConnectionError: the agent is gone.
        """
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


# Of a process, by its id: one that is forked from it has its own.
_connected: tuple[int, PodClient] | None = None
_link: tuple[int, AgentLink] | None = None


def pod_client() -> PodClient:
    """Returns this process's client of the pod's server: in its agent, or without one in a side process of its own."""
    global _connected  # noqa: PLW0603 - one for each process
    if _connected is None or _connected[0] != os.getpid():
        _connected = (os.getpid(), PodClient.connect())
    return _connected[1]


def current() -> AgentLink | None:
    """Returns this process's link to its agent; None: there is no agent that handles changes of the group."""
    global _link  # noqa: PLW0603 - one for each process
    if not os.environ.get(LOCAL_SOCKET):
        return None
    if _link is None or _link[0] != os.getpid():
        _link = (os.getpid(), AgentLink(pod_client()))
    return _link[1]
