import contextlib
import socket
import time
from collections.abc import Iterator

import pytest


@pytest.fixture
def deaf() -> Iterator[socket.socket]:
    """A server whose kernel takes no more connections, and is silent, like a dead node's."""
    with contextlib.ExitStack() as open_:
        server = open_.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waiting = open_.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(server.getsockname())
        time.sleep(0.2)
        yield server
