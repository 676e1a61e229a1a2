"""Hearing, beside a main thread that waits in a collective, that the group is broken.

NCCL's collectives do not raise when a peer is lost: the thread that waits for them is in C++, where no signal handler of Python's runs. So
a thread of its own listens to the agent, and ends what is waited for.
"""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable

from elastic_pytorch.pod.client import connect_to_agent
from elastic_pytorch.pod.messages import CHANGE, LOCAL_SOCKET, MAX_MESSAGE_BYTES


class GroupWatch:
    """Listens for as long as one group lasts. Its connection is its own: what was said of an earlier group does not reach it.

    Args:
        abort: ends what the group's collectives wait for; called in the thread of the watch, once at most.

    Attributes:
        broken: the agent has said that the group is broken. Set before `abort` is called, so what has been waited for is sound if this is
            not set when the wait is over.
    """

    def __init__(self, abort: Callable[[], None]) -> None:
        self.broken = False
        self._abort = abort
        self._link: socket.socket | None = None
        self._thread = threading.Thread(target=self._listen, name="group watch", daemon=True)
        with contextlib.suppress(OSError, ValueError):  # then the agent starts this process again
            self._link = connect_to_agent(os.environ[LOCAL_SOCKET])
            self._link.setblocking(True)
            self._thread.start()

    def stop(self) -> None:
        """Ends it. If it aborts the group at this moment, returns after that."""
        if self._link is not None:
            with contextlib.suppress(OSError):  # the agent is gone
                self._link.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._link.close()

    def _listen(self) -> None:
        assert self._link is not None
        with contextlib.suppress(OSError):
            while data := self._link.recv(MAX_MESSAGE_BYTES):
                message = json.loads(data)
                if message.get("kind") == CHANGE and not message.get("orderly"):
                    self.broken = True
                    self._abort()
                    return
