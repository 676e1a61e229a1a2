"""Other people's loops with the training library, over NCCL, as the page about it says."""

from pathlib import Path

import pytest

from tests.worker_image.agents import SCRIPTS, Agents, Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.gpu, pytest.mark.process]

HERE = Path(__file__).parent / "scripts"
STEPS = 60


@pytest.mark.parametrize("wrapper", ["lightning", "accelerate"])
def test_scaling_loses_nothing_and_a_lost_pod_a_step_at_most(
    operator: ScriptedOperator, events: Events, agents: Agents, wrapper: str
) -> None:
    pytest.importorskip(wrapper)
    settings = {"SCRIPTS": SCRIPTS, "STEPS": STEPS, "ELASTIC_PYTORCH_GRACE_SECONDS": 60}
    started = [
        agents(worker, HERE / f"with_{wrapper}.py", **settings) for worker in ("w0", "w1", "w2")
    ]
    operator.begin("w0", "w1", "w2")
    events.wait(what="step", step=10, world=3)
    operator.declare("w1", "w2", orderly=True)
    events.wait(what="step", step=30, world=2)
    steps = [event["step"] for event in events.all(what="step", worker="w1")]
    assert steps == list(range(1, len(steps) + 1)), "each step was computed once"
    started[2].kill()
    operator.declare("w1")
    events.wait(what="done", worker="w1")
    steps = [event["step"] for event in events.all(what="step", worker="w1")]
    assert sorted(set(steps)) == list(range(1, STEPS + 1))
    assert len(steps) - len(set(steps)) <= 1
    assert {event["device"] for event in events.all(what="restored")} == {"cuda:0"}
