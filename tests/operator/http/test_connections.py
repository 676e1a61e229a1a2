from elastic_pytorch_operator.http.connections import (
    MAX_PER_CLIENT,
    ConnectionLimits,
    Connections,
    Peer,
    Refusal,
)

LIMITS = ConnectionLimits(per_second=10, at_once=20, per_address=3, total=5, reserved=2)


def open_many(connections: Connections, address: str, count: int) -> list[Refusal | None]:
    return [connections.open((address, port), 100.0) for port in range(count)]


def test_an_address_may_have_a_few_unknown_connections_open() -> None:
    connections = Connections(LIMITS)
    assert open_many(connections, "a", 4) == [None, None, None, "address"]
    assert open_many(connections, "b", 1) == [None]
    connections.close(("a", 1))
    assert connections.open(("a", 9), 100.0) is None


def test_an_address_may_open_so_many_in_a_second_whether_or_not_they_stay_open() -> None:
    connections = Connections(LIMITS)

    def open_and_close(port: int, now: float) -> Refusal | None:
        refusal = connections.open(("a", port), now)
        connections.close(("a", port))
        return refusal

    assert [open_and_close(port, 100.0) for port in range(22)] == [None] * 20 + ["rate"] * 2
    assert [open_and_close(port, 101.0) for port in range(12)] == [None] * 10 + ["rate"] * 2


def test_connections_leave_the_process_some_files() -> None:
    connections = Connections(ConnectionLimits(open=3))
    for port in range(2):
        connections.open(("worker-1", port), 100.0)
        connections.authenticate(("worker-1", port), "pod-1")
    assert open_many(connections, "worker-2", 2) == [None, "files"]
    connections.close(("worker-1", 0))
    assert connections.open(("worker-2", 7), 100.0) is None


def test_beyond_the_total_only_expected_addresses_are_let_in() -> None:
    connections = Connections(LIMITS, lambda address: address.startswith("worker"))
    assert open_many(connections, "a", 3) + open_many(connections, "b", 2) == [None] * 5
    assert open_many(connections, "c", 1) == ["total"]
    assert open_many(connections, "worker-1", 1) + open_many(connections, "worker-2", 2) == [
        None,
        None,
        "total",
    ]
    connections.authenticate(("worker-1", 0), "pod-1")
    assert connections.open(("worker-2", 7), 100.0) is None, "a known connection makes room"
    assert open_many(connections, "c", 1) == ["total"]


def test_where_requests_are_short_the_newest_take_the_place_of_the_oldest() -> None:
    limits = ConnectionLimits(
        per_second=10, at_once=20, per_address=3, total=5, reserved=0, newest_first=True
    )
    displaced: list[Peer] = []
    connections = Connections(limits, displace=displaced.append)
    assert open_many(connections, "a", 3) == [None] * 3
    assert connections.open(("a", 7), 100.0) is None
    assert displaced == [("a", 0)]
    assert open_many(connections, "b", 2) == [None] * 2
    assert connections.open(("c", 1), 100.0) is None
    assert displaced == [("a", 0), ("a", 1)], "the oldest of all"
    for port in range(100, 200):
        if connections.open(("d", port), 100.0) == "rate":
            break
    before = list(displaced)
    assert connections.open(("d", 300), 100.0) == "rate"
    assert displaced == before, "none gives way to one that is refused"


def test_known_connections_count_for_their_client_alone_which_keeps_the_newest() -> None:
    connections = Connections(ConnectionLimits(per_address=2, total=2, reserved=0))

    def known(client: str, port: int) -> Peer | None:
        assert connections.open(("node", port), 100.0) is None
        return connections.authenticate(("node", port), client)

    assert [known("pod-1", port) for port in range(MAX_PER_CLIENT)] == [None] * MAX_PER_CLIENT
    assert [known("pod-2", port) for port in range(100, 103)] == [None] * 3
    assert known("pod-1", 50) == ("node", 0)
    assert connections.client_of(("node", 0)) is None
    connections.close(("node", 1))
    assert known("pod-1", 51) is None
    assert known("pod-1", 52) == ("node", 2)


def test_a_connection_that_has_been_closed_meanwhile_is_not_known() -> None:
    connections = Connections(LIMITS)
    connections.open(("a", 1), 100.0)
    connections.close(("a", 1))
    connections.authenticate(("a", 1), "pod")
    assert connections.client_of(("a", 1)) is None


def test_an_end_that_is_told_twice_leaves_nothing_behind() -> None:
    connections = Connections(LIMITS)
    assert connections.open(("a", 1), 100.0) is None
    connections.close(("a", 1))
    connections.close(("a", 1))
    assert open_many(connections, "a", 4) == [None, None, None, "address"]


def test_a_connection_is_whose_authenticated_on_it_last() -> None:
    connections = Connections(LIMITS)
    connections.open(("a", 1), 100.0)
    for client in ("pod-1", "pod-1", "pod-2"):
        assert connections.authenticate(("a", 1), client) is None
    connections.close(("a", 1))
    assert connections.client_of(("a", 1)) is None
    assert open_many(connections, "a", 3) == [None] * 3


def test_connections_from_expected_addresses_wait_until_they_are_known_or_closed() -> None:
    connections = Connections(LIMITS, lambda address: address.startswith("worker"))
    connections.open(("stranger", 1), 100.0)
    for port in (1, 2, 3):
        connections.open(("worker", port), 100.0 + port)
    assert connections.waiting == {("worker", 1): 101.0, ("worker", 2): 102.0, ("worker", 3): 103.0}
    connections.authenticate(("worker", 1), "pod-1")
    connections.close(("worker", 2))
    assert connections.waiting == {("worker", 3): 103.0}
