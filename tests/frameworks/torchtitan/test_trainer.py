"""torchtitan's Trainer with the library's loader and checkpoints, through resizes and a loss."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.frameworks.resizes import Agents, losses, samples_of, train_resized, train_undisturbed
from tests.worker_image.agents import Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [
    pytest.mark.process,
    pytest.mark.long,
    pytest.mark.skipif(find_spec("torchtitan") is None, reason="needs torchtitan: pip install torchtitan"),
]

SCRIPT = Path(__file__).parent / "scripts" / "titan.py"
EVERY, SAMPLES, BATCH, EPOCHS = 4, 120, 12, 3
OPTIONS = ("--every", EVERY, "--samples", SAMPLES, "--batch-size", BATCH, "--steps", EPOCHS * SAMPLES // BATCH)


def test_resizes_lose_nothing_and_a_loss_what_came_after_the_checkpoint(
    operator: ScriptedOperator, events: Events, agents: Agents, tmp_path: Path
) -> None:
    undisturbed = train_undisturbed(tmp_path / "undisturbed", SCRIPT, *OPTIONS, "--step-seconds", 0)
    by_resizes, by_loss = train_resized(operator, events, agents, SCRIPT, "--folder", tmp_path / "checkpoints", *OPTIONS)
    assert by_resizes == 0
    assert by_loss <= EVERY
    assert samples_of(events, SAMPLES, BATCH) == {(epoch, sample): 1 for epoch in range(EPOCHS) for sample in range(SAMPLES)}
    assert losses(events) == pytest.approx(losses(undisturbed), rel=1e-3, abs=1e-4)
