import pytest
from elastic_pytorch_client.reading.history import PHASES, HistoryEntry
from elastic_pytorch_operator.planning.reporting import interruption as operator_phases


def test_phases_are_those_that_the_operator_writes() -> None:
    assert PHASES == operator_phases.PHASES


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        ({}, ""),
        ({"stop": 0.1, "firstStep": 2.0}, "first step (2.0 s)"),
        ({"stop": 0.1, "wait": 0.0}, "stop (0.1 s)"),
    ],
)
def test_name_of_the_slowest(phases: dict[str, float], said: str) -> None:
    assert HistoryEntry(phases=phases).slowest == said
