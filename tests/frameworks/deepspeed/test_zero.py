"""DeepSpeed with the library, through resizes and a loss: what is lost, and what comes out."""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.frameworks.resizes import Agents, losses, samples_of, train_resized, train_undisturbed
from tests.worker_image.agents import Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [
    pytest.mark.process,
    pytest.mark.long,
    pytest.mark.skipif(
        find_spec("deepspeed") is None, reason="needs DeepSpeed: pip install deepspeed"
    ),
]

SCRIPT = Path(__file__).parent / "scripts" / "zero.py"
EVERY, SAMPLES, BATCH, EPOCHS = 4, 120, 12, 3
SIZES = ("--every", EVERY, "--samples", SAMPLES, "--batch-size", BATCH, "--epochs", EPOCHS)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_resizes_lose_nothing_and_a_loss_what_came_after_the_checkpoint(
    operator: ScriptedOperator, events: Events, agents: Agents, tmp_path: Path, stage: int
) -> None:
    if stage == 3 and tuple(int(part) for part in version("deepspeed").split(".")[:2]) < (0, 19):
        pytest.skip("ZeRO-3 of DeepSpeed 0.17 and 0.18 fails when the size of the group changes")
    options = ("--stage", stage, *SIZES)
    undisturbed = train_undisturbed(tmp_path / "undisturbed", SCRIPT, *options, "--step-seconds", 0)
    by_resizes, by_loss = train_resized(
        operator, events, agents, SCRIPT, "--folder", tmp_path / "checkpoints", *options
    )
    assert by_resizes == 0
    assert by_loss <= EVERY
    assert samples_of(events, SAMPLES, BATCH) == {
        (epoch, sample): 1 for epoch in range(EPOCHS) for sample in range(SAMPLES)
    }
    assert losses(events) == pytest.approx(losses(undisturbed), rel=1e-3, abs=1e-4)
    rates = {event["step"]: event["rate"] for event in events.all(what="step")}
    assert rates == pytest.approx(
        {event["step"]: event["rate"] for event in undisturbed.all(what="step")}
    )
    assert all(event["global_steps"] == event["step"] for event in events.all(what="step")), (
        "the engine counts on"
    )
    assert {event["best"] for event in events.all(what="restored") if event["step"]} == {1.0}
