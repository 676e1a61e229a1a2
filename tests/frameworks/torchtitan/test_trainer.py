"""torchtitan's Trainer with the library's loader and checkpoints, through resizes and losses."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.frameworks.resizes import (
    Agents,
    computed_twice,
    finish,
    losses,
    samples_of,
    start,
    train_resized,
    train_undisturbed,
    until_step,
)
from tests.worker_image.agents import Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [
    pytest.mark.process,
    pytest.mark.long,
    pytest.mark.skipif(
        find_spec("torchtitan") is None, reason="needs torchtitan: pip install torchtitan"
    ),
]

SCRIPT = Path(__file__).parent / "scripts" / "titan.py"
SAMPLES, BATCH, EPOCHS = 120, 12, 3
OPTIONS = ("--samples", SAMPLES, "--batch-size", BATCH, "--steps", EPOCHS * SAMPLES // BATCH)
NEVER, OFTEN = 1000, 2  # steps between checkpoints or commits


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    folder = tmp_path_factory.mktemp("of two workers") / "undisturbed"
    return losses(
        train_undisturbed(folder, SCRIPT, *OPTIONS, "--every", NEVER, "--step-seconds", 0)
    )


def check(events: Events, undisturbed: list[float]) -> None:
    """Each sample counts once in each epoch, and each loss is the undisturbed training's."""
    assert samples_of(events, SAMPLES, BATCH) == {
        (epoch, sample): 1 for epoch in range(EPOCHS) for sample in range(SAMPLES)
    }
    assert losses(events) == pytest.approx(undisturbed, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(
    ("every", "commit_every", "found"),
    [(NEVER, OFTEN, "found in memory"), (OFTEN, NEVER, "found in the framework's checkpoint")],
    ids=["memory is newer", "the checkpoint is newer"],
)
def test_resizes_lose_nothing_and_a_dead_process_what_came_after_the_newer_of_memory_and_checkpoint(
    every: int,
    commit_every: int,
    found: str,
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    undisturbed: list[float],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "checkpoints"
    options = ("--folder", folder, "--every", every, "--commit-every", commit_every, *OPTIONS)
    by_resizes, by_loss = train_resized(operator, events, agents, SCRIPT, *options, steps_each=5)
    assert by_resizes == 0
    assert by_loss <= OFTEN
    [*of_resizes, of_loss] = [
        line
        for line in (tmp_path / "w0.log").read_text().splitlines()
        if "going on from step" in line
    ]
    assert "found in the beginning" in of_resizes[0]
    assert all("found in memory" in line for line in of_resizes[1:])
    assert found in of_loss
    check(events, undisturbed)


def test_lost_pod_s_part_comes_from_another_pod(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    undisturbed: list[float],
    tmp_path: Path,
) -> None:
    options = (
        "--folder",
        tmp_path / "checkpoints",
        "--every",
        NEVER,
        "--commit-every",
        OFTEN,
        *OPTIONS,
    )
    started = start(operator, agents, 3, SCRIPT, *options)
    operator.declare("w0", "w1")
    until_step(events, 8, 2, started)
    started[1].kill()
    operator.declare("w0", "w2")
    finish(operator, "w0", "w2")
    assert "found in memory" in started[0].text().rpartition("going on from step")[2]
    assert computed_twice(events) < 8, "it has not begun again"
    check(events, undisturbed)
