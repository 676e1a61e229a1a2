from typing import Any

import pytest
from elastic_pytorch.operator_link.rounds import CheckRequest, Round, RoundError, parse_round

ANSWER: dict[str, Any] = {
    "round": 8,
    "size": 2,
    "rank": 1,
    "store": {"address": "10.244.1.5", "port": 29500},
    "cause": "WorkerLost: job-worker-2-aaaaa was deleted",
    "nudge": 3,
    "worker": "job-worker-1-9q2mm",
    "verdict": None,
}
MEMBERS = [
    {"worker": "job-worker-0-x7k2p", "index": 0, "address": "10.244.1.5"},
    {"worker": "job-worker-1-9q2mm", "index": 1, "address": "fd00::7"},
]
LISTED = {name: field for name, field in ANSWER.items() if name not in ("size", "rank")} | {"members": MEMBERS}


def test_a_round_is_read() -> None:
    declared = parse_round(ANSWER)
    assert declared == Round(
        number=8,
        size=2,
        rank=1,
        store_address="10.244.1.5",
        store_port=29500,
        cause="WorkerLost: job-worker-2-aaaaa was deleted",
        nudge=3,
        worker="job-worker-1-9q2mm",
        verdict=None,
    )
    assert declared.orderly_since == 8, "left out: nobody is waited for"
    assert declared.keeps_all_since == 8, "left out: somebody may have to leave"
    assert declared.rank_of("job-worker-1-9q2mm") == 1
    assert parse_round(ANSWER | {"rank": None}).rank_of("job-worker-1-9q2mm") is None


CHECK: dict[str, Any] = {
    "number": 4,
    "firstRank": 1,
    "worldSize": 2,
    "store": {"address": "10.244.1.5", "port": 29501},
    "seconds": 20,
}


def test_a_check_is_read() -> None:
    assert parse_round(ANSWER).check is None
    assert parse_round(ANSWER | {"check": CHECK}).check == CheckRequest(4, 1, 2, "10.244.1.5", 29501, 20)


@pytest.mark.parametrize(
    "change",
    [{"number": 0}, {"firstRank": 2}, {"worldSize": 0}, {"store": None}, {"seconds": "20"}, {"seconds": 10**6}],
)
def test_what_is_no_check_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RoundError):
        parse_round(ANSWER | {"check": CHECK | change})


def test_round_of_an_older_operator_lists_its_members() -> None:
    declared = parse_round(LISTED)
    assert (declared.size, declared.members) == (2, ("job-worker-0-x7k2p", "job-worker-1-9q2mm"))
    assert declared.rank_of("job-worker-1-9q2mm") == 1
    assert declared.rank_of("somebody-else") is None


@pytest.mark.parametrize(
    ("newest", "kept"),
    [
        (Round(9, 2, 1, keeps_all_since=7), True),
        (Round(9, 2, 1, keeps_all_since=8), True),
        (Round(9, 2, 1, keeps_all_since=9), False),
        (Round(9, 0), False),
        (Round(9, 3, members=("c", "b", "a")), True),
        (Round(9, 2, members=("c", "b")), False),
        (Round(9, 0, members=()), False),
    ],
)
def test_round_keeps_all_of_an_earlier_one(newest: Round, kept: bool) -> None:
    earlier = Round(8, 2, members=("a", "b")) if newest.members else Round(8, 2, 0)
    assert newest.keeps_all_of(earlier) is kept
    assert newest.keeps_all_of(newest)


def test_an_empty_round_needs_no_store() -> None:
    assert parse_round(ANSWER | {"size": 0, "rank": None, "store": None}).size == 0
    assert parse_round(LISTED | {"members": [], "store": None}).size == 0


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


@pytest.mark.parametrize(
    "members",
    [None, {"a": 1}, ["w"], [{"index": 0}], [{"worker": "w w"}], [{"worker": ""}], [{"worker": "w"}] * 2],
)
def test_what_is_no_list_of_members_is_refused(members: object) -> None:
    with pytest.raises(RoundError):
        parse_round(LISTED | {"members": members})


@pytest.mark.parametrize("answer", [None, [], "round", 8, True, {}])
def test_what_is_no_object_is_refused(answer: object) -> None:
    with pytest.raises(RoundError):
        parse_round(answer)
