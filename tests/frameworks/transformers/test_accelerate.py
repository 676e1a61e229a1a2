"""Accelerate with the training library, through resizes and a loss; and what is refused."""

from pathlib import Path
from typing import Any

import pytest

accelerate = pytest.importorskip(
    "accelerate", reason="accelerate is not installed: `make venv` installs what the tests need"
)

from tests.frameworks.resizes import Agents, losses, samples_of, train_resized, train_undisturbed  # noqa: E402
from tests.worker_image.agents import Events  # noqa: E402
from tests.worker_image.scripted_operator import ScriptedOperator  # noqa: E402

pytestmark = [pytest.mark.process, pytest.mark.long]

SCRIPT = Path(__file__).parent / "train_with_accelerate.py"
SAMPLES, BATCH, EPOCHS = 300, 12, 2
# The library's words, or those of Accelerate 1.3, which refuses the loader itself.
REFUSALS = (
    "BatchSamplerShard stands between the loader and its ElasticSampler",
    "even_batches=False",
)
SIZES = ("--samples", SAMPLES, "--batch-size", BATCH, "--epochs", EPOCHS)


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_resizes_lose_nothing_and_a_killed_rank_a_step_at_most(
    operator: ScriptedOperator, events: Events, agents: Agents, tmp_path: Path, precision: str
) -> None:
    options = (*SIZES, "--precision", precision)
    undisturbed = train_undisturbed(tmp_path / "undisturbed", SCRIPT, *options, "--step-seconds", 0)
    by_resizes, by_loss = train_resized(
        operator,
        events,
        agents,
        SCRIPT,
        "--folder",
        tmp_path / "checkpoints",
        *options,
        sizes=(3, 2, 4, 3),
    )
    assert by_resizes == 0
    assert by_loss <= 1
    assert samples_of(events, SAMPLES, BATCH) == {
        (epoch, sample): 1 for epoch in range(EPOCHS) for sample in range(SAMPLES)
    }
    refused = [event["message"] for event in events.all(what="refused", RANK=0)]
    assert len(refused) == 5, "a loader that was prepared, in each group"
    assert all(any(words in message for words in REFUSALS) for message in refused)
    near = 1e-5 if precision == "no" else 1e-2
    assert losses(events) == pytest.approx(losses(undisturbed), abs=near)
    assert rates(events) == pytest.approx(rates(undisturbed))
    evaluated, expected = evaluations(events), evaluations(undisturbed)
    assert evaluated[max(expected)]["loss"] == pytest.approx(
        expected[max(expected)]["loss"], abs=near
    )
    assert all(event["samples"] == list(range(SAMPLES)) for event in evaluated.values()), (
        "gather_for_metrics has each once"
    )


def rates(events: Events) -> dict[int, float]:
    return {event["step"]: event["rate"] for event in events.all(what="step")}


def evaluations(events: Events) -> dict[int, dict[str, Any]]:
    return {event["step"]: event for event in events.all(what="evaluated")}
