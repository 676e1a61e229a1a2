from typing import Any

import pytest
from elastic_pytorch_operator.model.operator_state import OperatorState, read_operator_state

from tests.operator.builders import TIME


@pytest.mark.parametrize(
    ("state", "fields"),
    [
        (OperatorState(2), {"scheduleTimeouts": 2}),
        (OperatorState(0, TIME, TIME), {"lastGrowthTime": TIME, "newestPodTime": TIME}),
        (OperatorState(interruption={"round": 3}), {"interruption": {"round": 3}}),
    ],
)
def test_what_is_written_is_read(state: OperatorState, fields: dict[str, Any]) -> None:
    assert state.as_status() == {"operatorState": fields}
    assert read_operator_state(state.as_status()) == state


def test_nothing_is_written_of_nothing() -> None:
    assert OperatorState().as_status() == {}
    assert read_operator_state({}) == OperatorState()


@pytest.mark.parametrize("garbage", [None, True, -1, 1.5, "x" * 9, [], {}, [{}], {"a": 1}])
def test_what_cannot_be_read_counts_as_not_written(garbage: Any) -> None:
    assert read_operator_state({"operatorState": garbage}) == OperatorState()
    counts = {"scheduleTimeouts": garbage}
    assert read_operator_state({"operatorState": counts}) == OperatorState()
    times = dict.fromkeys(("lastGrowthTime", "newestPodTime"), garbage)
    text = garbage if isinstance(garbage, str) else ""
    assert read_operator_state({"operatorState": times}) == OperatorState(0, text, text)
