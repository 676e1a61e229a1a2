"""Connects to a round's store as soon as it is served.

All workers of a round start together, so rank 0 may serve the store some milliseconds after the others try to connect. Torch's client, once
refused, sleeps for 0.3 to 0.7 s before it tries again: longer than the rest of a change of the group.
"""

import importlib
import socket
import time
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined] # documented, and there

FIRST_PAUSE_SECONDS = 0.004
LONGEST_PAUSE_SECONDS = 0.1
DEFAULT_TIMEOUT = timedelta(minutes=5)  # TCPStore's own


class PromptTCPStore(TCPStore):
    """Torch's store; its client first waits, with short pauses, until the server listens."""

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if not is_master:
            wait_until_served(host_name, port, timeout.total_seconds())
        super().__init__(host_name, port, world_size, is_master, timeout, *args, **kwargs)


def wait_until_served(host: str, port: int, seconds: float) -> None:
    """Waits until a process listens on the port, at most the given seconds; torch reports what fails after that."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, port), timeout=max(0.1, deadline - time.monotonic())).close()
        except ConnectionRefusedError:
            time.sleep(pause)
            pause = min(pause * 1.3, LONGEST_PAUSE_SECONDS)
        except OSError:
            return  # waiting here would not help
        else:
            return


def install() -> None:
    """Makes `init_process_group` of this process, and of those forked from it, use this store."""
    # by name: torch.distributed also has a function called rendezvous
    module = importlib.import_module("torch.distributed.rendezvous")
    if hasattr(module, "TCPStore"):
        vars(module)["TCPStore"] = PromptTCPStore
