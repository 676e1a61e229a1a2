import pytest
from elastic_pytorch_client.reading.history import PHASES, name_slowest
from elastic_pytorch_operator.planning.reporting import interruption as operator_phases


def test_phases_are_those_that_the_operator_writes() -> None:
    assert PHASES == operator_phases.PHASES


@pytest.mark.parametrize(
    ("slowest", "said"),
    [
        ("", ""),
        ("firstStep", "first step (2.0 s)"),
        ("stop", "stop (0.1 s)"),
        ("thaw", "thaw (0.0 s)"),
    ],
)
def test_name_of_the_slowest(slowest: str, said: str) -> None:
    assert name_slowest({"stop": 0.1, "firstStep": 2.0}, slowest) == said
