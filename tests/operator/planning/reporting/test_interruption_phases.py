"""Which part of an interruption took how long."""

from typing import Any

import pytest
from elastic_pytorch_operator.planning.reporting.interruption_phases import (
    PHASES,
    Milestones,
    slowest_phase,
    split_interruption,
)


def milestones(**changes: Any) -> Milestones:
    known = {
        "since": 10.0,
        "declared_at": 10.1,
        "stopped_at": 10.5,
        "regrouped_at": 10.5,
        "started_at": 10.8,
        "formed_at": 12.0,
        "stepped_at": 12.2,
    }
    return Milestones(**{**known, **changes})


@pytest.mark.parametrize(
    ("changes", "phases"),
    [
        pytest.param(
            {},
            {"detection": 0.1, "stop": 0.4, "wait": 0.0, "start": 0.3, "init": 1.2, "firstStep": 0.2},
            id="all is known",
        ),
        pytest.param(
            {"regrouped_at": 60.0, "started_at": 60.2, "formed_at": 61.0, "stepped_at": 62.0},
            {"detection": 0.1, "stop": 0.4, "wait": 49.5, "start": 0.2, "init": 0.8, "firstStep": 1.0},
            id="a job below its minimum waits for a pod",
        ),
        pytest.param(
            {"set_up_at": 40.0, "regrouped_at": 60.0, "started_at": 60.2, "formed_at": 61.0, "stepped_at": 62.0},
            {"detection": 0.1, "stop": 0.4, "wait": 29.5, "prepare": 20.0, "start": 0.2, "init": 0.8, "firstStep": 1.0},
            id="a job below its minimum waits for a pod, and then for its set-up",
        ),
        pytest.param(
            {"set_up_at": 10.2, "regrouped_at": 30.0, "started_at": 30.2, "formed_at": 31.0, "stepped_at": 32.0},
            {"detection": 0.1, "stop": 0.4, "wait": 0.0, "prepare": 19.5, "start": 0.2, "init": 0.8, "firstStep": 1.0},
            id="a set-up has begun before the others had stopped",
        ),
        pytest.param(
            {"started_at": None, "formed_at": None},
            {"detection": 0.1, "stop": 0.4, "wait": 0.0, "firstStep": 1.7},
            id="an agent that is the user's own torchrun",
        ),
        pytest.param(
            {"formed_at": None},
            {"detection": 0.1, "stop": 0.4, "wait": 0.0, "start": 0.3, "firstStep": 1.4},
            id="a script that starts cold",
        ),
        pytest.param(
            {"started_at": 11.0, "formed_at": None, "stepped_at": None},
            {"detection": 0.1, "stop": 0.4, "wait": 0.0, "start": 0.5},
            id="a script that reports no steps",
        ),
        pytest.param(
            {"stopped_at": None},
            {"detection": 0.1, "wait": 0.4, "start": 0.3, "init": 1.2, "firstStep": 0.2},
            id="it is not known when they stopped",
        ),
        pytest.param(
            {"declared_at": 10.0, "stopped_at": 9.0, "regrouped_at": 9.0},
            {"detection": 0.0, "stop": 0.0, "wait": 0.0, "start": 0.8, "init": 1.2, "firstStep": 0.2},
            id="no phase is negative",
        ),
        pytest.param(
            {"started_at": 13.0, "formed_at": 12.5},
            {"detection": 0.1, "stop": 0.4, "wait": 0.0, "start": 1.7, "init": 0.0, "firstStep": 0.0},
            id="a pod starts after the others have stepped",
        ),
    ],
)
def test_phases(changes: dict[str, Any], phases: dict[str, float]) -> None:
    found = split_interruption(milestones(**changes))
    assert found == pytest.approx(phases)
    assert list(found) == [phase for phase in PHASES if phase in phases]


def test_together_they_are_the_interruption() -> None:
    for missing in PHASES:
        name = {"detection": "declared", "stop": "stopped", "wait": "regrouped", "start": "started", "init": "formed"}.get(
            missing
        )
        changes = {f"{name}_at": None} if name else {}
        assert sum(split_interruption(milestones(**changes)).values()) == pytest.approx(2.2)


@pytest.mark.parametrize(
    ("phases", "slowest"),
    [
        ({}, ""),
        ({"detection": 0.1, "stop": 20.0, "init": 3.0}, "stop"),
        ({"stop": 1.0, "init": 1.0}, "stop"),
    ],
)
def test_slowest(phases: dict[str, float], slowest: str) -> None:
    assert slowest_phase(phases) == slowest
