"""In which order connections that came together are served: the newest first, and not too many wait. Pure.

A client waits some seconds for its handshake, then gives the connection up and opens another. If more clients come together than can be
served in these seconds, then the oldest first would be the wrong order: each connection that has its turn has just been given up, or is
about to be. The server would work all the time and serve no client. That state would not end, as those that gave up come again.
"""

from collections import deque
from typing import Generic, TypeVar

Arrival = TypeVar("Arrival")


class Arrivals(Generic[Arrival]):
    """What has been accepted, and waits for its turn.

    Args:
        capacity: how many may wait. About as many as can be served before their clients give up.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: deque[Arrival] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, arrival: Arrival) -> Arrival | None:
        """Adds the newest; returns the oldest, which is to be closed, if too many wait."""
        self._waiting.append(arrival)
        return self._waiting.popleft() if len(self._waiting) > self._capacity else None

    def take(self) -> Arrival:
        """Returns the newest, which waits no more.

        Raises:
            IndexError: none waits.
        """
        return self._waiting.pop()
