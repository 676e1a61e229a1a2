"""Notices that the group is broken while the main thread waits in a collective.

NCCL's collectives do not raise when a peer is lost: they wait in C++, without Python's signal
handlers. So another thread listens to the agent, and aborts them.
"""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable

from elastic_pytorch.failures.peer_errors import is_peer_error
from elastic_pytorch.pod.client import connect_to_agent
from elastic_pytorch.pod.messages import CHANGE, LOCAL_SOCKET, MAX_MESSAGE_BYTES

AGAIN_SECONDS = 0.1  # between two calls of `cut`


class GroupWatch:
    """Listens for the lifetime of one group, without messages about earlier ones.

    When the group is broken, the watch's thread sets `broken`, calls `abort`, and then repeats
    `cut` until `stop`, as the main thread may yet begin to wait for a connection. A collective's
    result is sound if `broken` is not set after it.
    """

    def __init__(self, abort: Callable[[], None], cut: Callable[[], None]) -> None:
        self.broken = False
        self._abort, self._cut = abort, cut
        self._stopped = threading.Event()
        self._link: socket.socket | None = None
        self._thread = threading.Thread(target=self._listen, name="group watch", daemon=True)
        with contextlib.suppress(OSError, ValueError):  # then the agent restarts this process
            self._link = connect_to_agent(os.environ[LOCAL_SOCKET])
            self._link.setblocking(True)
            self._thread.start()

    def stop(self) -> None:
        """Ends the watch, after an abort in progress."""
        if self._link is not None:
            self._stopped.set()
            with contextlib.suppress(OSError):  # the agent is gone
                self._link.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._link.close()

    def _listen(self) -> None:
        assert self._link is not None
        with contextlib.suppress(OSError):
            while not self.broken and (data := self._link.recv(MAX_MESSAGE_BYTES)):
                message = json.loads(data)
                self.broken = message.get("kind") == CHANGE and not message.get("orderly")
            if self.broken:
                self._abort()
                while not self._stopped.wait(AGAIN_SECONDS):
                    self._cut()


def is_peer_loss(error: BaseException) -> bool:
    """Whether an exception, or one of its causes, says that a collective has lost a peer.

    An unclear case, such as a rank that never comes, is one: the operator knows whether a member
    was lost, and if not, counts the failure.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, RuntimeError) and is_peer_error(f"{type(seen).__name__}: {seen}"):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
