"""Ports for servers that must know theirs before they listen, or listen there again."""

import os
import socket
from contextlib import suppress
from itertools import count

# Linux gives none of these to a socket that asks for any port, nor to a connection: neither another
# test nor a client that tries again and again gets one by chance.
FIRST, NUMBER = 20_000, 9_000
TRIES = count(61 * os.getpid())  # processes that run tests side by side begin apart


def free_port() -> int:
    """Returns a port at which nothing listens, another one each time."""
    while True:
        port = FIRST + next(TRIES) % NUMBER
        with suppress(OSError), socket.socket() as found:
            found.bind(("", port))
            return port
