import json
from typing import Any

import pytest
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.round_answer import MAX_CAUSE_CHARACTERS, RoundAnswer
from elastic_pytorch_operator.model.round import Member, Round

from tests.operator.builders import a_round
from tests.operator.counted_lines import count_lines

NEWS = {"nudge": 3, "dump": 0, "verdict": None}


def tell(declared: Round | None, worker: str = "w1") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RoundAnswer(declared).describe(worker, 0, NEWS))
    return found


def a_group(**fields: Any) -> Round:
    members = (Member("w0", "10.0.0.1"), Member("w1", "10.0.0.2"))
    return Round(8, members, 29501, "WorkerLost", "“w2” is gone", 0.0, orderly_since=7, **fields)


def test_answer_has_the_agents_own_rank() -> None:
    assert tell(a_group(keeps_all_since=6)) == {
        "round": 8,
        "orderlySince": 7,
        "rank": 1,
        "size": 2,
        "keepsAllSince": 6,
        "store": {"address": "10.0.0.1", "port": 29501},
        "cause": "WorkerLost: “w2” is gone",
        **NEWS,
    }
    assert tell(a_group(), "w2")["rank"] is None


@pytest.mark.parametrize("declared", [None, Round(0, (), 0, "", "", 0.0)])
def test_without_members_there_is_no_store(declared: Round | None) -> None:
    answer = tell(declared)
    assert (answer["round"], answer["orderlySince"], answer["store"]) == (0, 0, None)
    assert (answer["size"], answer["rank"]) == (0, None)


def test_long_cause_is_cut() -> None:
    assert (
        len(tell(Round(1, (), 0, "WorkerLost", "w is gone; " * 1000, 0.0))["cause"])
        == MAX_CAUSE_CHARACTERS
    )


def test_bytes_and_cost_of_an_answer_do_not_depend_on_the_members() -> None:
    sizes, costs = [], []
    for workers in (10, 1000):
        answer = RoundAnswer(a_round(*range(workers)))
        sizes.append(len(answer.describe("w1", 0, NEWS)))
        costs.append(count_lines(lambda a=answer: a.describe("w1", 0, NEWS)))  # type: ignore[misc]
    assert sizes[1] <= sizes[0] + 2, "but for the digits of the size"
    assert costs[0] == costs[1]


def test_round_is_encoded_once_for_all_agents() -> None:
    registry = AgentRegistry()
    registry.declare("uid", a_round(*range(100)))
    job = registry.job("uid")
    first, later = (
        count_lines(lambda worker=worker: job.answer.describe(worker, 0, NEWS))  # type: ignore[misc]
        for worker in ("w1", "w2")
    )
    assert later < first
    registry.declare("uid", a_round(0, number=2))
    assert json.loads(job.answer.describe("w1", 0, NEWS))["round"] == 2
