from typing import Any

import pytest
from elastic_pytorch.operator_link.rounds import Round, RoundError, parse_round

ANSWER: dict[str, Any] = {
    "round": 8,
    "size": 2,
    "rank": 1,
    "store": {"address": "10.244.1.5", "port": 29500},
    "cause": "WorkerLost: job-worker-2-aaaaa was deleted",
    "nudge": 3,
    "verdict": None,
    "orderlySince": 7,
    "keepsAllSince": 6,
}


def test_a_round_is_read() -> None:
    assert parse_round(ANSWER) == Round(
        number=8,
        size=2,
        rank=1,
        store_address="10.244.1.5",
        store_port=29500,
        cause="WorkerLost: job-worker-2-aaaaa was deleted",
        nudge=3,
        verdict=None,
        orderly_since=7,
        keeps_all_since=6,
    )
    assert parse_round(ANSWER | {"rank": None}).rank is None


def test_an_empty_round_needs_no_store() -> None:
    assert parse_round(ANSWER | {"size": 0, "rank": None, "store": None}).size == 0


@pytest.mark.parametrize("since", [0, 8])
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
        {"size": "2"},
        {"size": -1},
        {"size": 0},
        {"size": 10**6},
        {"rank": "1"},
        {"rank": -1},
        {"rank": 2},
        {"keepsAllSince": "7"},
        {"keepsAllSince": 9},
        {"store": None},
        {"store": {"address": "a", "port": 0}},
        {"store": {"address": "a", "port": 65536}},
        {"store": {"address": "a", "port": "29500"}},
        {"nudge": "3"},
        {"orderlySince": "7"},
        {"orderlySince": -1},
        {"orderlySince": 9},
        {"verdict": "done"},
        {"verdict": ["complete"]},
    ],
)
def test_what_is_no_round_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RoundError):
        parse_round(ANSWER | change)


@pytest.mark.parametrize("answer", [None, [], "round", 8, True, {}])
def test_what_is_no_object_is_refused(answer: object) -> None:
    with pytest.raises(RoundError):
        parse_round(answer)
