"""What was slow in an interruption, and what to set."""

import pytest
from elastic_pytorch_client.reading.interruption_phases import MANY_STEPS, PHASES, SLOW_SECONDS, advise, name_slowest
from elastic_pytorch_operator.planning.reporting import interruption as operator_phases


def test_phases_are_those_that_the_operator_writes() -> None:
    assert PHASES == operator_phases.PHASES


@pytest.mark.parametrize("phase", PHASES)
def test_each_slow_phase_has_its_advice(phase: str) -> None:
    (line,) = advise(dict.fromkeys(PHASES, 0.0) | {phase: SLOW_SECONDS[phase]}, 0)
    assert "took" in line
    assert not advise({phase: SLOW_SECONDS[phase] - 0.1}, None)


def test_slow_stop_names_the_grace_period() -> None:
    (line,) = advise({"stop": 20.3}, None, grace_seconds=30)
    assert line.startswith("stop took 20.3 s. The script's SIGTERM handler")
    assert line.endswith("It is 30 now.")


def test_steps_that_were_done_again() -> None:
    (line,) = advise({}, MANY_STEPS)
    assert line.startswith(f"{MANY_STEPS} steps were repeated. Write checkpoints more often")
    assert not advise({}, MANY_STEPS - 1)


@pytest.mark.parametrize(
    ("slowest", "said"), [("", ""), ("firstStep", "first step (2.0 s)"), ("stop", "stop (0.1 s)"), ("thaw", "thaw (0.0 s)")]
)
def test_name_of_the_slowest(slowest: str, said: str) -> None:
    assert name_slowest({"stop": 0.1, "firstStep": 2.0}, slowest) == said
