"""The messages between an agent and its workers over the pod's socket."""

import contextlib
import os
import socket
from collections import deque
from typing import Any

LOCAL_SOCKET = "ELASTIC_PYTORCH_LOCAL_SOCKET"  # the variable with the socket's path
MAX_MESSAGE_BYTES = 64 << 10
MAX_NAME_CHARACTERS = 200

# From a worker.
COOPERATES = "cooperates"
PARKED = "parked"
LEFT = "left"
LOST_PEER = "lostPeer"
# From an agent.
CHANGE = "change"
GO = "go"

Message = dict[str, Any]
# Messages to be sent, some with a descriptor to be closed after that.
Waiting = deque[tuple[bytes, int | None]]


def send_waiting(link: socket.socket, waiting: Waiting) -> None:
    """Sends messages until the socket takes no more, and raises OSError if it has failed."""
    with contextlib.suppress(BlockingIOError):
        while waiting:
            data, descriptor = waiting[0]
            socket.send_fds(
                link, [data], [] if descriptor is None else [descriptor], socket.MSG_NOSIGNAL
            )
            waiting.popleft()
            close(descriptor)


def drop_waiting(waiting: Waiting) -> None:
    while waiting:
        close(waiting.popleft()[1])


def close(descriptor: int | None) -> None:
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.close(descriptor)
