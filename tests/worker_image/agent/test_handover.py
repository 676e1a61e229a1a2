import json
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
    times = {"waited_seconds": waited, "idle_seconds": 0, "boundary_seconds": 10}
    assert choose_way(workers, **change, **times, rest_seconds=1) is way


@pytest.mark.parametrize("change", [ORDERLY, LOSS])
@pytest.mark.parametrize(("rested", "way"), [(0.9, Way.WAIT), (1, Way.RESTART)])
def test_worker_that_hangs_in_leaving_is_not_waited_for_as_for_a_boundary(
    change: dict[str, bool], rested: float, way: Way
) -> None:
    times = {"waited_seconds": 5, "idle_seconds": rested, "boundary_seconds": 300}
    assert choose_way([LEFT, LIVELY_PARKED], **change, **times, rest_seconds=1) is way


class Server:
    def __init__(self) -> None:
        self.on_message: Any = None
        self.wished: list[dict[str, Any] | None] = []
        self.sent: list[tuple[int, dict[str, Any]]] = []

    def broadcast(self, message: dict[str, Any] | None) -> None:
        self.wished.append(message)

    def send(self, pid: int, message: dict[str, Any]) -> None:
        self.sent.append((pid, message))


class Timed(Handover):
    """A handover in its first round, at a moment that the test sets."""

    def __init__(self, *cooperating: int, boundary_seconds: float = 10, in_process: bool = True):
        self.moment, self.rung, self.server = 0.0, 0, Server()
        super().__init__(
            self.server,
            self.ring,
            boundary_seconds=boundary_seconds,
            rest_seconds=1,
            clock=lambda: self.moment,
        )
        self.start_round()
        for pid in cooperating:
            self.hear(pid, "cooperates", inProcess=in_process)

    def ring(self) -> None:
        self.rung += 1

    def hear(self, pid: int, kind: str, **more: Any) -> None:
        self.server.on_message(pid, {"kind": kind, **more})


def change(number: int, orderly: bool) -> dict[str, Any]:
    return {"kind": "change", "round": number, "orderly": orderly, "leaves": False}


def test_a_change_is_announced_once_and_withdrawn() -> None:
    handover = Timed(7)
    server = handover.server
    for _ in range(2):
        assert handover.way([7], newer_round=3, orderly=True) is Way.WAIT
    assert server.wished == [None, change(3, True)]
    handover.hear(7, "parked")
    assert handover.way([7], newer_round=3, orderly=True) is Way.WAIT
    handover.hear(7, "left")
    assert handover.rung == 3
    assert handover.way([7], newer_round=3, orderly=True) is Way.KEEP_PROCESSES
    handover.keep_processes({7: {"RANK": "1"}})
    assert server.wished[-1] is None
    assert server.sent == [(7, {"kind": "go", "environment": {"RANK": "1"}})]
    handover.moment = 0.5
    assert handover.way([7], newer_round=4, orderly=True) is Way.WAIT, "it is no longer parked"
    handover.moment = 2.0
    assert handover.way([7], newer_round=4, orderly=True) is Way.RESTART, (
        "its new group may never be whole: nobody waits for a boundary"
    )
    handover.hear(7, "cooperates", inProcess=True)
    assert handover.way([7], newer_round=4, orderly=True) is Way.WAIT


WAITS_THEN_RESTARTS = [*[Way.WAIT] * 4, Way.RESTART]


def test_time_to_leave_the_group_begins_at_the_boundary() -> None:
    handover, ways = Timed(7, 8), []
    for moment, parked in ((0.0, None), (5.0, 7), (7.0, 8), (7.9, None), (8.1, None)):
        handover.moment = moment
        if parked is not None:
            handover.hear(parked, "parked")
        ways.append(handover.way([7, 8], newer_round=3, orderly=True))
    assert ways == WAITS_THEN_RESTARTS


def test_loss_while_a_boundary_is_waited_for_has_its_own_time() -> None:
    handover, ways = Timed(7, boundary_seconds=60), []
    for moment, number in ((0.0, 3), (20.0, 3), (20.0, 4), (20.9, 4), (21.1, 4)):
        handover.moment = moment
        ways.append(handover.way([7], newer_round=number, orderly=number == 3))
    assert ways == WAITS_THEN_RESTARTS
    assert handover.server.wished[-1] == change(4, False)


def test_workers_are_told_of_a_failure_before_there_is_a_newer_round() -> None:
    handover = Timed(7, 8)
    handover.hear(7, "lostPeer", message="RuntimeError: reset")
    assert handover.way([7, 8], newer_round=None, orderly=True) is Way.WAIT
    assert handover.server.wished[-1] == change(0, False)


@pytest.mark.parametrize(
    "moments",
    [
        [(0.0, False), (100.0, False), (299.0, False), (299.9, False), (301.0, False)],
        [(0.0, False), (100.0, False), (100.0, True), (109.0, True), (111.0, True)],
    ],
    ids=["nobody is sent away", "one comes to be in a hurry"],
)
def test_who_is_in_no_hurry_waits_for_long(moments: list[tuple[float, bool]]) -> None:
    handover, ways = Timed(7, in_process=False), []
    for moment, urgent in moments:
        handover.moment = moment
        ways.append(handover.way([7], newer_round=3, orderly=True, urgent=urgent))
    assert ways == WAITS_THEN_RESTARTS


def test_what_is_no_message_is_ignored() -> None:
    handover = Timed()
    for message in ({}, {"kind": None}, {"kind": "parked!"}, {"kind": ["cooperates"]}):
        handover.server.on_message(7, message)
    assert handover.way([7], newer_round=2, orderly=True) is Way.RESTART


def test_lost_peer_is_told_with_its_local_rank() -> None:
    handover = Timed()
    assert handover.lost_peers({0: 70, 1: 71}) == {}
    handover.hear(71, "lostPeer", message="RuntimeError: reset")
    assert handover.lost_peers({0: 70, 1: 71}) == {1: "RuntimeError: reset"}


def test_lost_peer_s_long_words_leave_room_for_the_rest_of_a_heartbeat() -> None:
    handover = Timed()
    handover.hear(70, "lostPeer", message="\U0001f525" * 4000)
    [told] = handover.lost_peers({0: 70}).values()
    # As the message and as the name of the exception, of 64 KiB at most.
    assert len(json.dumps([told, told])) < 32 * 1024
