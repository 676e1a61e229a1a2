from pathlib import Path

import pytest

from tests.torch_features import FSDP2, FSDP2_REASON
from tests.worker_image.agents import Agents, Events
from tests.worker_image.running_agent.test_state_changes import (
    computed_twice,
    finish,
    lineage,
    run_undisturbed,
    start,
    train_on,
)
from tests.worker_image.scripted_operator import ScriptedOperator
from tests.worker_image.scripts.own_orders import SAMPLES, of_all_sizes, with_repeats

pytestmark = [pytest.mark.torch, pytest.mark.process]

BATCH = 6
COMMON = ("--samples", SAMPLES, "--open-ended", "--own")
# Each rank computes an uneven share at once, and of the smallest batches some compute nothing.
AT_ONCE = ("--batch-size", 0, "--micro-batch-size", 0, "--dropout", 0)
OPTIONS = {
    "sampler": (*COMMON, "sampler", "--batch-size", BATCH),
    "batch_sampler": (*COMMON, "batch_sampler", *AT_ONCE),
}


def batches_of(own: str, epoch: int) -> list[list[int]]:
    if own == "batch_sampler":
        return of_all_sizes(epoch)
    samples = with_repeats(epoch)
    return [samples[begin : begin + BATCH] for begin in range(0, len(samples), BATCH)]


@pytest.mark.parametrize(
    ("own", "option"),
    [
        pytest.param("sampler", (), marks=pytest.mark.long),
        ("batch_sampler", ("--in-process",)),
        pytest.param(
            "batch_sampler",
            ("--sharded",),
            marks=[pytest.mark.long, pytest.mark.skipif(not FSDP2, reason=FSDP2_REASON)],
        ),
    ],
    ids=["order", "batches in process", "batches sharded"],
)
def test_each_sample_comes_in_its_step_whatever_the_group_is_within_an_epoch(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    slow: Path,
    tmp_path_factory: pytest.TempPathFactory,
    own: str,
    option: tuple[str, ...],
) -> None:
    expected = [(epoch, sorted(batch)) for epoch in range(2) for batch in batches_of(own, epoch)]
    within = len(batches_of(own, 0))
    start(agents, operator, 3, *OPTIONS[own], "--slow", slow, "--step-seconds", 0.5, *option)
    train_on(events, 3)
    operator.declare("w0", "w2", orderly=True)
    train_on(events, 2)
    operator.declare("w0", "w1", "w2", orderly=True)
    train_on(events, 3)
    slow.unlink()
    parameters = finish(operator, events, "w0", "w1", "w2")
    steps = lineage(events)
    assert sorted(steps) == list(range(1, len(expected) + 1))
    seen = [
        (ranks[0]["epoch"], sorted(sample for event in ranks for sample in event["samples"]))
        for _, ranks in sorted(steps.items())
    ]
    assert seen == expected, (
        "each step has the samples of its place in the order, each as often as it comes there"
    )
    assert computed_twice(events) == 0
    worlds = [len(steps[step]) for step in range(1, within + 1)]
    assert [worlds[0], min(worlds), worlds[-1]] == [3, 2, 3], (
        "the group changed within the first epoch"
    )
    assert parameters == pytest.approx(
        run_undisturbed(tmp_path_factory.mktemp("undisturbed"), 1, *OPTIONS[own]), abs=1e-4
    )
