from typing import Any

import pytest
from elastic_pytorch.agent.handover import Handover, Way, WorkerReport, choose_way

STOCK = WorkerReport()
COOPERATES = WorkerReport(cooperates=True)
LIVELY = WorkerReport(cooperates=True, in_process=True)
PARKED = WorkerReport(cooperates=True, parked=True)
LIVELY_PARKED = WorkerReport(cooperates=True, in_process=True, parked=True)
LEFT = WorkerReport(cooperates=True, in_process=True, parked=True, left=True)
BEREFT = WorkerReport(
    cooperates=True, in_process=True, lost_peer="RuntimeError: Connection closed by peer"
)

ORDERLY = {"newer": True, "orderly": True}
LOSS = {"newer": True, "orderly": False}
FAILURE = {"newer": False, "orderly": True}


@pytest.mark.parametrize(
    ("workers", "change", "waited", "way"),
    [
        ([STOCK], ORDERLY, 0, Way.RESTART),
        ([STOCK], LOSS, 0, Way.RESTART),
        ([COOPERATES], ORDERLY, 0, Way.WAIT),
        ([COOPERATES], ORDERLY, 9.9, Way.WAIT),
        ([COOPERATES], ORDERLY, 10, Way.RESTART),
        ([COOPERATES], LOSS, 0, Way.RESTART),
        ([COOPERATES, STOCK], ORDERLY, 0, Way.RESTART),
        ([COOPERATES, PARKED], ORDERLY, 1, Way.WAIT),
        ([PARKED, PARKED], ORDERLY, 0, Way.RESTART),
        ([LIVELY], ORDERLY, 5, Way.WAIT),
        ([LIVELY], LOSS, 0.5, Way.WAIT),
        ([LIVELY], LOSS, 1, Way.RESTART),
        ([LIVELY], FAILURE, 0, Way.WAIT),
        ([LEFT], ORDERLY, 0, Way.KEEP_PROCESSES),
        ([LEFT, LIVELY], ORDERLY, 0, Way.WAIT),
        ([LEFT, LIVELY], ORDERLY, 5, Way.WAIT),
        ([LEFT, PARKED], ORDERLY, 0, Way.RESTART),
        ([LEFT, LIVELY_PARKED], ORDERLY, 9, Way.WAIT),
        ([BEREFT, LEFT], LOSS, 0, Way.KEEP_PROCESSES),
        ([BEREFT, LIVELY_PARKED], LOSS, 9, Way.WAIT),
        ([BEREFT], FAILURE, 100, Way.WAIT),
        ([BEREFT], LOSS, 100, Way.KEEP_PROCESSES),
    ],
)
def test_way_out_of_a_round(
    workers: list[WorkerReport], change: dict[str, bool], waited: float, way: Way
) -> None:
    found = choose_way(
        workers,
        **change,
        waited_seconds=waited,
        idle_seconds=0,
        boundary_seconds=10,
        rest_seconds=1,
    )
    assert found is way


@pytest.mark.parametrize("change", [ORDERLY, LOSS])
@pytest.mark.parametrize(("rested", "way"), [(0.9, Way.WAIT), (1, Way.RESTART)])
def test_worker_that_hangs_in_leaving_is_not_waited_for_as_for_a_boundary(
    change: dict[str, bool], rested: float, way: Way
) -> None:
    workers = [LEFT, LIVELY_PARKED]
    assert (
        choose_way(
            workers,
            **change,
            waited_seconds=5,
            idle_seconds=rested,
            boundary_seconds=300,
            rest_seconds=1,
        )
        is way
    )


class Server:
    """Keeps what it is to tell."""

    def __init__(self) -> None:
        self.on_message: Any = None
        self.wished: list[dict[str, Any] | None] = []
        self.sent: list[tuple[int, dict[str, Any]]] = []

    def broadcast(self, message: dict[str, Any] | None) -> None:
        self.wished.append(message)

    def send(self, pid: int, message: dict[str, Any]) -> None:
        self.sent.append((pid, message))


def test_a_change_is_announced_once_and_withdrawn() -> None:
    server, rung, moment = Server(), [], [0.0]
    handover = Handover(
        server, lambda: rung.append(1), boundary_seconds=10, rest_seconds=1, clock=lambda: moment[0]
    )
    handover.start_round()
    server.on_message(7, {"kind": "cooperates", "inProcess": True})
    for _ in range(2):
        assert handover.way([7], newer_round=3, orderly=True) is Way.WAIT
    assert server.wished == [None, {"kind": "change", "round": 3, "orderly": True, "leaves": False}]
    server.on_message(7, {"kind": "parked", "step": 12})
    assert handover.way([7], newer_round=3, orderly=True) is Way.WAIT
    server.on_message(7, {"kind": "left"})
    assert len(rung) == 3
    assert handover.way([7], newer_round=3, orderly=True) is Way.KEEP_PROCESSES
    handover.keep_processes({7: {"RANK": "1"}})
    assert server.wished[-1] is None
    assert server.sent == [(7, {"kind": "go", "environment": {"RANK": "1"}})]
    moment[0] = 0.5
    assert handover.way([7], newer_round=4, orderly=True) is Way.WAIT, "it is no longer parked"
    moment[0] = 2.0
    assert handover.way([7], newer_round=4, orderly=True) is Way.RESTART, (
        "its new group may never be whole: nobody waits for a boundary"
    )
    server.on_message(7, {"kind": "cooperates", "inProcess": True})
    assert handover.way([7], newer_round=4, orderly=True) is Way.WAIT


def test_time_to_leave_the_group_begins_at_the_boundary() -> None:
    server, moment = Server(), [0.0]
    handover = Handover(
        server, lambda: None, boundary_seconds=10, rest_seconds=1, clock=lambda: moment[0]
    )
    handover.start_round()
    for worker in (7, 8):
        server.on_message(worker, {"kind": "cooperates", "inProcess": True})
    ways = []
    for moment[0], parked in ((0.0, None), (5.0, 7), (7.0, 8), (7.9, None), (8.1, None)):
        if parked is not None:
            server.on_message(parked, {"kind": "parked", "step": 12})
        ways.append(handover.way([7, 8], newer_round=3, orderly=True))
    assert ways == [Way.WAIT, Way.WAIT, Way.WAIT, Way.WAIT, Way.RESTART]


def test_loss_while_a_boundary_is_waited_for_has_its_own_time() -> None:
    server, moment = Server(), [0.0]
    handover = Handover(
        server, lambda: None, boundary_seconds=60, rest_seconds=1, clock=lambda: moment[0]
    )
    handover.start_round()
    server.on_message(7, {"kind": "cooperates", "inProcess": True})
    ways = []
    for moment[0], number, orderly in (
        (0.0, 3, True),
        (20.0, 3, True),
        (20.0, 4, False),
        (20.9, 4, False),
        (21.1, 4, False),
    ):
        ways.append(handover.way([7], newer_round=number, orderly=orderly))
    assert ways == [Way.WAIT, Way.WAIT, Way.WAIT, Way.WAIT, Way.RESTART]
    assert server.wished[-1] == {"kind": "change", "round": 4, "orderly": False, "leaves": False}


def test_workers_are_told_of_a_failure_before_there_is_a_newer_round() -> None:
    server = Server()
    handover = Handover(
        server, lambda: None, boundary_seconds=10, rest_seconds=1, clock=lambda: 0.0
    )
    handover.start_round()
    for worker in (7, 8):
        server.on_message(worker, {"kind": "cooperates", "inProcess": True})
    server.on_message(7, {"kind": "lostPeer", "message": "RuntimeError: reset"})
    assert handover.way([7, 8], newer_round=None, orderly=True) is Way.WAIT
    assert server.wished[-1] == {"kind": "change", "round": 0, "orderly": False, "leaves": False}


def test_change_that_sends_nobody_away_may_take_its_time() -> None:
    server, moment = Server(), [0.0]
    handover = Handover(
        server, lambda: None, boundary_seconds=10, rest_seconds=1, clock=lambda: moment[0]
    )
    handover.start_round()
    server.on_message(7, {"kind": "cooperates", "inProcess": False})
    ways = []
    for moment[0] in (0.0, 100.0):
        ways.append(handover.way([7], newer_round=3, orderly=True, urgent=False))
    assert ways == [Way.WAIT, Way.WAIT]
    moment[0] = 301.0
    assert handover.way([7], newer_round=3, orderly=True, urgent=False) is Way.RESTART


def test_who_comes_to_be_in_a_hurry_has_the_whole_time_for_that() -> None:
    server, moment = Server(), [0.0]
    handover = Handover(
        server, lambda: None, boundary_seconds=10, rest_seconds=1, clock=lambda: moment[0]
    )
    handover.start_round()
    server.on_message(7, {"kind": "cooperates", "inProcess": False})
    found = []
    for moment[0], urgent in ((0.0, False), (100.0, True), (109.0, True), (111.0, True)):
        found.append(handover.way([7], newer_round=3, orderly=True, urgent=urgent))
    assert found == [Way.WAIT, Way.WAIT, Way.WAIT, Way.RESTART]


def test_what_is_no_message_is_ignored() -> None:
    server = Server()
    handover = Handover(server, lambda: None, boundary_seconds=10, rest_seconds=1)
    for message in ({}, {"kind": None}, {"kind": "parked!"}, {"kind": ["cooperates"]}):
        server.on_message(7, message)
    assert handover.way([7], newer_round=2, orderly=True) is Way.RESTART


def test_lost_peer_is_told_with_its_local_rank() -> None:
    server = Server()
    handover = Handover(server, lambda: None, boundary_seconds=10, rest_seconds=1)
    assert handover.lost_peers({0: 70, 1: 71}) == {}
    server.on_message(71, {"kind": "lostPeer", "message": "RuntimeError: reset"})
    assert handover.lost_peers({0: 70, 1: 71}) == {1: "RuntimeError: reset"}
