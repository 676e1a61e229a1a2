"""Connects to a round's store as soon as it is served, and leaves it as soon as the round is over.

All workers of a round start together, so rank 0 may serve the store some milliseconds after the
others try to connect. Torch's client, once refused, sleeps for 0.3 to 0.7 s before it tries again:
longer than the rest of a change of the group.

A group forms through its store: each rank waits there for what the others write. If one of them
never comes, the wait lasts for the group's time-out, and nothing of torch's ends it, as there is no
group yet that could be aborted. So the connections to the store are shut down.
"""

import contextlib
import importlib
import socket
import threading
import time
from datetime import timedelta
from typing import Any

from torch.distributed import DistNetworkError, TCPStore  # type: ignore[attr-defined] # documented, and there

from elastic_pytorch.torch_fixes.gloo_sockets import shut_down

FIRST_PAUSE_SECONDS = 0.004
LONGEST_PAUSE_SECONDS = 0.1
# To connect: a host that is gone does not refuse, and `leave` must be noticed.
LONGEST_ATTEMPT_SECONDS = 0.5
DEFAULT_TIMEOUT = timedelta(minutes=5)  # TCPStore's own

_left = threading.Event()
# Of the stores that the group of this process forms through.
_addresses: set[tuple[str, int]] = set()


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
        with contextlib.suppress(OSError):  # torch says what is wrong with the name
            _addresses.update(
                (str(found[4][0]), port)
                for found in socket.getaddrinfo(host_name, port, type=socket.SOCK_STREAM)
            )
        if not is_master:
            wait_until_served(host_name, port, timeout.total_seconds())
        super().__init__(host_name, port, world_size, is_master, timeout, *args, **kwargs)


def wait_until_served(host: str, port: int, seconds: float) -> None:
    """Waits until a process listens on the port, at most the given seconds; torch reports what fails after that.

    Raises:
        DistNetworkError: this process leaves the group.
    """
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE_SECONDS
    while time.monotonic() < deadline:
        if _left.is_set():
            raise DistNetworkError(f"the group is left before its store at {host}:{port} is there")
        try:
            attempt = min(LONGEST_ATTEMPT_SECONDS, max(0.1, deadline - time.monotonic()))
            socket.create_connection((host, port), timeout=attempt).close()
        except ConnectionRefusedError:
            time.sleep(pause)
            pause = min(pause * 1.3, LONGEST_PAUSE_SECONDS)
        except TimeoutError:
            continue
        except OSError:
            return  # waiting here would not help
        else:
            return


def enter() -> None:
    """Begins a group: its stores may be waited for."""
    _left.clear()
    _addresses.clear()


def leave() -> None:
    """Ends all waits for and in the stores of this process's group, with errors, until `enter`.

    May be called from any thread.
    """
    _left.set()
    shut_down(lambda link: _peer(link) in _addresses)


def _peer(link: socket.socket) -> tuple[str, int]:
    host, port, *_ = link.getpeername()
    return host.removeprefix("::ffff:"), port  # torch's client speaks IPv4 through sockets of IPv6


def install() -> None:
    """Makes `init_process_group` of this process, and of those forked from it, use this store."""
    # by name: torch.distributed also has a function called rendezvous
    module = importlib.import_module("torch.distributed.rendezvous")
    if hasattr(module, "TCPStore"):
        vars(module)["TCPStore"] = PromptTCPStore
