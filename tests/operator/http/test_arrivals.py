"""In which order connections that came together have their turn."""

import heapq
import itertools
import random
from collections import deque

import pytest
from elastic_pytorch_operator.http.connections import Arrivals

SERVED_SECONDS = 0.0025  # by a handshake, the review of a token and an answer
PATIENCE_SECONDS = 2.0  # of a client, for its handshake
PAUSE_SECONDS = 0.2  # of a client, until it opens another connection


def test_newest_has_its_turn_first() -> None:
    arrivals: Arrivals[str] = Arrivals(3)
    assert not arrivals
    assert [arrivals.add(name) for name in "abc"] == [None] * 3
    assert [arrivals.take(), arrivals.add("d"), arrivals.take(), arrivals.take()] == ["c", None, "d", "b"]
    assert arrivals


def test_oldest_is_closed_when_too_many_wait() -> None:
    arrivals: Arrivals[str] = Arrivals(2)
    assert [arrivals.add(name) for name in "abcd"] == [None, None, "a", "b"]
    assert [arrivals.take(), arrivals.take()] == ["d", "c"]
    with pytest.raises(IndexError):
        arrivals.take()


class OldestFirst(Arrivals[int]):
    """The order of the kernel's own queue."""

    _waiting: deque[int]

    def take(self) -> int:
        return self._waiting.popleft()


def seconds_until_all_are_served(arrivals: Arrivals[int], clients: int, end: float) -> float:
    """Simulates clients that come within a second, wait, give up and come again; infinity: some are not served by the end."""
    order, counter = random.Random(1), itertools.count()
    attempts = dict.fromkeys(range(clients), -1)  # the connection that each client waits for
    connections: dict[int, int] = {}  # whose each is
    events = [(order.random(), next(counter), "come", client) for client in attempts]
    heapq.heapify(events)
    busy = False
    while events and (now := events[0][0]) < end:
        _, number, what, which = heapq.heappop(events)
        if what == "come":
            connections[number], attempts[which] = which, number
            heapq.heappush(events, (now + PATIENCE_SECONDS, next(counter), "give up", number))
            if (closed := arrivals.add(number)) is not None:
                heapq.heappush(events, (now, next(counter), "give up", closed))
        elif what == "give up" and attempts.get(connections[which]) == which:
            attempts[connections[which]] = -1
            heapq.heappush(events, (now + PAUSE_SECONDS * order.uniform(0.5, 1.5), next(counter), "come", connections[which]))
        elif what == "served":
            busy = False
            if attempts.get(connections[which]) == which:
                del attempts[connections[which]]
                if not attempts:
                    return now
        if arrivals and not busy:
            busy = True
            heapq.heappush(events, (now + SERVED_SECONDS, next(counter), "served", arrivals.take()))
    return float("inf")


@pytest.mark.parametrize("clients", [500, 2_000])
def test_all_clients_that_come_together_are_served_almost_as_fast_as_the_server_can(clients: int) -> None:
    assert seconds_until_all_are_served(Arrivals(512), clients, 100.0) < 1.25 * clients * SERVED_SECONDS + 1


def test_oldest_first_would_serve_those_that_have_just_given_up() -> None:
    assert seconds_until_all_are_served(OldestFirst(100_000), 2_000, 20.0) == float("inf")
