import socket
import time

import pytest
from elastic_pytorch.operator_link.first_connection import connect_first


def test_server_that_listens_is_found_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.monotonic()
        with connect_first(server.getsockname(), 20) as found:
            assert found.getpeername() == server.getsockname()
            assert found.getblocking()
        assert time.monotonic() - began < 10


def test_each_address_of_a_name_is_tried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # localhost may be ::1 first
        connect_first(("localhost", server.getsockname()[1]), 20).close()


def test_server_that_refuses_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
    began = time.monotonic()
    with pytest.raises(ConnectionRefusedError):
        connect_first(place, 20)
    assert time.monotonic() - began < 10


def test_server_that_never_answers_is_given_up(deaf: socket.socket) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        connect_first(deaf.getsockname(), 0.6)
    assert 0.5 < time.monotonic() - began < 10


def test_address_without_a_way_to_it_is_told_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(OSError, match=r".") as failure:
        connect_first(("255.255.255.255", 9), 20)
    assert not isinstance(failure.value, TimeoutError)
    assert time.monotonic() - began < 10


def test_address_of_a_family_that_the_kernel_lacks_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking = (9999, socket.SOCK_STREAM, 0, "", ("::1", 9))
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = (socket.AF_INET, socket.SOCK_STREAM, 0, "", server.getsockname())
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [lacking, there])
        connect_first(("operator", 1), 20).close()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [lacking])
        with pytest.raises(OSError, match="not supported"):
            connect_first(("operator", 1), 20)
