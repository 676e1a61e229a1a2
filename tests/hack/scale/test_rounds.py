import json
from typing import Any

import pytest
from scale.rounds import Round, read_round

MEMBERS = [{"worker": f"w-{n}", "index": n, "address": "10.0.0.1"} for n in (2, 0)]
NEWS = {"round": 8, "orderlySince": 7, "store": None, "cause": "WorkerLost: w-1", "nudge": 3, "dump": 0, "verdict": "complete"}


@pytest.mark.parametrize(
    ("group", "rank", "size"),
    [
        ({"rank": 1, "size": 2}, 1, 2),
        ({"rank": None, "size": 2}, None, 2),
        ({"members": MEMBERS}, 1, 2),
        ({"members": MEMBERS[:1]}, None, 1),
        ({"members": []}, None, 0),
    ],
)
def test_rank_of_the_asker(group: dict[str, Any], rank: int | None, size: int) -> None:
    answer = json.dumps(NEWS | group).encode()
    assert read_round(answer, "w-0") == Round(8, 7, rank, size, "WorkerLost: w-1", 3, "complete")


def test_no_round_yet() -> None:
    assert read_round(b'{"round": 0, "rank": null, "size": 0, "cause": null}', "w-0") == Round()


def test_what_is_no_round() -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        read_round(b"<html>", "w-0")
    with pytest.raises(KeyError):
        read_round(b'{"round": 1}', "w-0")
