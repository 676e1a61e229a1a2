"""Lightning with the library, through resizes and a loss: what is lost, and what comes out."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.frameworks.lightning.runs import (
    Agents,
    check_samples,
    computed_twice,
    curve,
    train_alone,
    train_resized,
)
from tests.worker_image.agents import Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        find_spec("lightning") is None, reason="needs Lightning: pip install lightning"
    ),
]

VARIANTS = {
    "micro batches": ("--micro-batch-size", 3, "--batch-size", 12),
    "accumulation": ("--accumulate", 2, "--batch-size", 5, "--sampler"),
    "two optimizers": ("--manual",),
    "bf16": ("--precision", "bf16-mixed"),
}


def check(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    tmp_path: Path,
    *options: object,
    like: float,
) -> None:
    (tmp_path / "alone").mkdir()
    alone = train_alone(tmp_path / "alone", *options)
    train_resized(operator, events, agents, "--folder", tmp_path, *options)
    check_samples(alone)
    check_samples(events)
    assert len(computed_twice(events)) <= 1, "the loss costs one step at most, a resize none"
    expected, was = curve(alone), curve(events)
    for step, ((loss, rate, _), (expected_loss, expected_rate, _)) in enumerate(
        zip(was, expected, strict=True), start=1
    ):
        assert rate == pytest.approx(expected_rate), f"step {step}"
        assert loss == pytest.approx(expected_loss, abs=like), f"step {step}"
    validations = [
        (e["epoch"], e["step"]) for e in events.all(what="validated", sanity=False, RANK=0)
    ]
    steps = len(expected)
    assert validations == [(0, steps // 2), (1, steps)], "each epoch ends with one validation"
    [best] = events.all(what="best", RANK=0)
    [expected_best] = alone.all(what="best")
    assert best["score"] == pytest.approx(expected_best["score"], abs=like)
    assert best["path"] == expected_best["path"], "ModelCheckpoint goes on with what it has seen"


@pytest.mark.long
def test_uneven_shares_and_schedules(
    operator: ScriptedOperator, events: Events, agents: Agents, tmp_path: Path
) -> None:
    check(operator, events, agents, tmp_path, like=1e-4)
    assert {event["batch"] for event in events.all(what="step", worker="w0")} >= set(
        range(12, 40)
    ), "batches are numbered on"


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_scripts_do_besides(
    operator: ScriptedOperator, events: Events, agents: Agents, tmp_path: Path, variant: str
) -> None:
    # Of 80 losses up to 2.1, rounding to bfloat16 changes one by 0.009, in any group: two runs may
    # differ by twice as much.
    check(
        operator,
        events,
        agents,
        tmp_path,
        *VARIANTS[variant],
        like=3e-2 if variant == "bf16" else 1e-4,
    )
