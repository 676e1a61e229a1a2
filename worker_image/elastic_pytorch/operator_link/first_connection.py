"""Connects to the server that answers first, as Happy Eyeballs (RFC 8305) does for addresses.

For a while, a Service may route a connection to a server that has died with its node. Its packets
are lost, while another connection would reach the next server.
"""

import errno
import itertools
import os
import select
import socket
import time

ATTEMPT_DELAY_SECONDS = 0.25  # RFC 8305, section 8


def connect_first(place: tuple[str, int], timeout_seconds: float) -> socket.socket:
    """Opens a connection every quarter of a second until one is established; it blocks.

    Raises:
        OSError: none was established in time, or each address has failed.
    """
    addresses = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)
    untried = itertools.cycle(addresses)
    attempts = 0
    waiting: dict[int, socket.socket] = {}
    poll = select.poll()
    due = time.monotonic()
    end = due + timeout_seconds
    try:
        while (now := time.monotonic()) < end:
            if now >= due or not waiting:
                family, kind, protocol, _, address = next(untried)
                attempts += 1
                due = now + ATTEMPT_DELAY_SECONDS
                try:
                    attempt = socket.socket(family, kind, protocol)
                except OSError:  # a kernel without IPv6, most likely
                    if not waiting and attempts >= len(addresses):
                        raise
                    continue
                waiting[attempt.fileno()] = attempt
                attempt.setblocking(False)
                code = attempt.connect_ex(address)
                poll.register(attempt, select.POLLOUT)
                ready = [] if code == errno.EINPROGRESS else [(attempt.fileno(), code)]
            else:
                ready = [
                    (descriptor, waiting[descriptor].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
                    for descriptor, _ in poll.poll(max(0.0, min(due, end) - now) * 1000)
                ]
            for descriptor, code in ready:
                poll.unregister(descriptor)
                ended = waiting.pop(descriptor)
                if not code:
                    ended.setblocking(True)
                    return ended
                ended.close()
                if not waiting and attempts >= len(addresses):
                    raise OSError(code, os.strerror(code))
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    finally:
        for attempt in waiting.values():
            attempt.close()
