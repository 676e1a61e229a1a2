from typing import Any

import pytest
from scale.rounds import Round, read_round

SENT = {
    "round": 8,
    "orderlySince": 7,
    "store": None,
    "cause": "WorkerLost: w-1",
    "nudge": 3,
    "dump": 0,
    "verdict": "complete",
    "size": 2,
}


@pytest.mark.parametrize("rank", [1, None])
def test_round_that_was_sent(rank: int | None) -> None:
    assert read_round(SENT | {"rank": rank}) == Round(8, 7, rank, 2, "WorkerLost: w-1", 3)


@pytest.mark.parametrize("missing", ["round", "size", "nudge"])
def test_what_is_no_round(missing: str) -> None:
    fields: dict[str, Any] = SENT | {"rank": 1}
    del fields[missing]
    with pytest.raises(KeyError):
        read_round(fields)
