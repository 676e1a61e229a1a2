import socket

import pytest
from elastic_pytorch.operator_link.store_port import StorePort


def bind(port: int, *, reuse: bool) -> socket.socket:
    server = socket.socket(socket.AF_INET6)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    if reuse:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("::", port))
    return server


def test_two_agents_of_one_host_reserve_different_ports() -> None:
    one, other = StorePort(25500), StorePort(25500)
    assert 25500 <= one.number < other.number < 25600
    one.close()
    other.close()


def test_a_lent_port_is_free_for_a_store_and_for_nobody_else() -> None:
    reservation = StorePort(25600)
    port = reservation.number
    with pytest.raises(OSError, match="in use"):
        bind(port, reuse=True)
    reservation.lend(port)
    with pytest.raises(OSError, match="in use"):
        bind(port, reuse=False)
    with bind(port, reuse=True) as store:
        store.listen()
        socket.create_connection(("127.0.0.1", port)).close()
    assert reservation.number != port
    reservation.close()


def test_another_port_than_the_reserved_one_is_not_lent() -> None:
    reservation = StorePort(25700)
    before = reservation.number
    reservation.lend(before + 1000)
    assert reservation.number == before
    reservation.close()


def test_if_all_hundred_are_taken_any_will_do() -> None:
    reservations = [StorePort(25800) for _ in range(101)]
    assert len({reservation.number for reservation in reservations}) == 101
    assert not 25800 <= reservations[-1].number < 25900
    for reservation in reservations:
        reservation.close()
