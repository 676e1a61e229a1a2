from typing import Any

import pytest
from elastic_pytorch.operator_link.rounds import Member, Round, RoundError, parse_round

ANSWER: dict[str, Any] = {
    "round": 8,
    "members": [
        {"worker": "job-worker-0-x7k2p", "index": 0, "address": "10.244.1.5"},
        {"worker": "job-worker-1-9q2mm", "index": 1, "address": "fd00::7"},
    ],
    "store": {"address": "10.244.1.5", "port": 29500},
    "cause": "WorkerLost: job-worker-2-aaaaa was deleted",
    "nudge": 3,
    "worker": "job-worker-1-9q2mm",
    "verdict": None,
}


def test_a_round_is_read() -> None:
    declared = parse_round(ANSWER)
    assert declared == Round(
        number=8,
        members=(Member("job-worker-0-x7k2p", 0, "10.244.1.5"), Member("job-worker-1-9q2mm", 1, "fd00::7")),
        store_address="10.244.1.5",
        store_port=29500,
        cause="WorkerLost: job-worker-2-aaaaa was deleted",
        nudge=3,
        worker="job-worker-1-9q2mm",
        verdict=None,
    )
    assert declared.orderly_since == 8, "left out: nobody is waited for"
    assert declared.size == 2
    assert declared.rank_of("job-worker-1-9q2mm") == 1
    assert declared.rank_of("somebody-else") is None


def test_an_empty_round_needs_no_store() -> None:
    assert parse_round(ANSWER | {"members": [], "store": None}).size == 0


@pytest.mark.parametrize("since", [0, 5, 8])
def test_since_when_nobody_has_been_lost_is_read(since: int) -> None:
    assert parse_round(ANSWER | {"orderlySince": since}).orderly_since == since


def test_fields_of_a_later_version_are_passed_over() -> None:
    assert parse_round(ANSWER | {"colour": "green"}) == parse_round(ANSWER)


def test_a_cause_cannot_forge_lines_of_the_log() -> None:
    assert parse_round(ANSWER | {"cause": "a\nb\x1b[31mc"}).cause == "a b [31mc"
    assert len(parse_round(ANSWER | {"cause": "x" * 10**6}).cause) == 1000


@pytest.mark.parametrize(
    "change",
    [
        {"round": "8"},
        {"round": True},
        {"round": -1},
        {"round": 1.5},
        {"round": None},
        {"members": None},
        {"members": {"a": 1}},
        {"members": ["w"]},
        {"members": [{"worker": "w", "index": 0}]},
        {"members": [{"worker": "w", "index": -1, "address": "a"}]},
        {"members": [{"worker": "w w", "index": 0, "address": "a"}]},
        {"members": [{"worker": "w", "index": 0, "address": "a\nb"}]},
        {"members": [{"worker": "", "index": 0, "address": "a"}]},
        {"members": [{"worker": "w", "index": 0, "address": "a"}] * 2},
        {"store": None},
        {"store": {"address": "a", "port": 0}},
        {"store": {"address": "a", "port": 65536}},
        {"store": {"address": "a", "port": "29500"}},
        {"nudge": "3"},
        {"orderlySince": "7"},
        {"orderlySince": None},
        {"orderlySince": -1},
        {"orderlySince": 9},
        {"verdict": "done"},
        {"verdict": ["complete"]},
        {"worker": {"name": "w"}},
    ],
)
def test_what_is_no_round_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RoundError):
        parse_round(ANSWER | change)


@pytest.mark.parametrize("answer", [None, [], "round", 8, True, {}])
def test_what_is_no_object_is_refused(answer: object) -> None:
    with pytest.raises(RoundError):
        parse_round(answer)
