"""Connects to a round's store as soon as it is served, and leaves it when the round is over.

Rank 0 may serve the store after others try to connect. A refused client of torch then sleeps for
0.3 to 0.7 s, longer than the rest of a change of the group.

A group forms through its store. If a rank never comes, the wait for it ends only with the group's
time-out, because no group exists that could be aborted. So this module shuts the connections to the
store down.

For its log, torch looks up the name of each peer until one look-up fails (pytorch/pytorch#159596).
If no name server answers, that takes 10 s in each new process. So one look-up fails beforehand.
"""

import contextlib
import ctypes
import importlib
import os
import socket
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import DistNetworkError, TCPStore  # type: ignore[attr-defined] # documented

from elastic_pytorch.torch_fixes.gloo_sockets import shut_down

FIRST_PAUSE_SECONDS = 0.004
LONGEST_PAUSE_SECONDS = 0.1
# To connect: a host that is gone does not refuse, and `leave` must end the wait.
LONGEST_ATTEMPT_SECONDS = 0.5
DEFAULT_TIMEOUT = timedelta(minutes=5)  # TCPStore's own
NAMELESS_ADDRESS = "127.0.0.2"  # /etc/hosts has no name for it
SERVERS = 4  # the index of their number in glibc's `res_state`

_left = threading.Event()
# The stores through which this process's group forms.
_addresses: set[tuple[str, int]] = set()


class PromptTCPStore(TCPStore):
    """Torch's store, whose client waits with short pauses until the server listens."""

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
        with contextlib.suppress(OSError):  # torch reports what is wrong with the name
            _addresses.update(
                (str(found[4][0]), port)
                for found in socket.getaddrinfo(host_name, port, type=socket.SOCK_STREAM)
            )
        if not is_master:
            wait_until_served(host_name, port, timeout.total_seconds())
        super().__init__(host_name, port, world_size, is_master, timeout, *args, **kwargs)


def wait_until_served(host: str, port: int, seconds: float) -> None:
    """Raises DistNetworkError if this process leaves the group; torch reports the rest."""
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
    _left.clear()
    _addresses.clear()


def leave() -> None:
    """Ends all waits for and in this group's stores, until `enter`. Safe in any thread."""
    _left.set()
    shut_down(lambda link: _peer(link) in _addresses)


def _peer(link: socket.socket) -> tuple[str, int]:
    host, port, *_ = link.getpeername()
    return host.removeprefix("::ffff:"), port  # torch's client has IPv6 sockets for IPv4


def install() -> None:
    """Makes `init_process_group`, in this process and its forks, use this store."""
    # by name: torch.distributed also has a function called rendezvous
    module = importlib.import_module("torch.distributed.rendezvous")
    if hasattr(module, "TCPStore"):
        vars(module)["TCPStore"] = PromptTCPStore
        with contextlib.suppress(AttributeError, RuntimeError):  # musl, which has no `res_state`
            _fail_a_name_lookup()


def resolver_of_this_thread() -> Any:
    """The `res_state` of glibc, as 32-bit numbers."""
    libc = ctypes.CDLL(None)
    libc.__res_init()
    libc.__res_state.restype = ctypes.POINTER(ctypes.c_int)
    return libc.__res_state()


def _fail_a_name_lookup() -> None:
    """Connects to a store while there is no name server, without torch's warning."""
    resolver, stderr = resolver_of_this_thread(), os.dup(2)
    servers = resolver[SERVERS]
    try:
        with Path(os.devnull).open("wb") as silence:
            os.dup2(silence.fileno(), 2)
        resolver[SERVERS] = 0
        TCPStore(NAMELESS_ADDRESS, 0, 1, True, timedelta(seconds=5))
    finally:
        resolver[SERVERS] = servers
        os.dup2(stderr, 2)
        os.close(stderr)
