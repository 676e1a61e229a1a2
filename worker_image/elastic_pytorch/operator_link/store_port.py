"""Reserves a port for the store of the next round that this pod leads."""

import contextlib
import socket

TRIES = 100


class StorePort:
    """Reserves the first free port of a hundred, else any, with a socket that never listens.

    With the host's network, other jobs bind ports, too. A socket without SO_REUSEADDR keeps them
    away. `lend` lets torch's store, which sets SO_REUSEADDR, bind the port beside the reservation.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._lent: socket.socket | None = None
        self._held = self._reserve()

    @property
    def number(self) -> int:
        return int(self._held.getsockname()[1]) if self._held else 0

    def lend(self, port: int) -> None:
        if self._held is None or port != self.number:
            return
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._lent is not None:
            self._lent.close()
        self._lent = self._held
        self._held = self._reserve()

    def close(self) -> None:
        for reservation in (self._lent, self._held):
            if reservation is not None:
                reservation.close()
        self._lent = self._held = None

    def _reserve(self) -> socket.socket | None:
        for port in (*range(self._first, min(self._first + TRIES, 65536)), 0):
            with contextlib.suppress(OSError):
                return _bind(port)
        return None


def _bind(port: int) -> socket.socket:
    both = socket.has_dualstack_ipv6()
    reservation = socket.socket(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if both:
            reservation.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        reservation.bind(("", port))
    except OSError:
        reservation.close()
        raise
    return reservation
