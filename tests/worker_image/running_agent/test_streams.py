from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.worker_image.agents import SCRIPTS, Agents, Events
from tests.worker_image.running_agent.test_state_changes import ENVIRONMENT, computed_twice, lineage
from tests.worker_image.scripted_operator import ScriptedOperator
from tests.worker_image.scripts.stream_shards import every_sample

pytestmark = [pytest.mark.torch, pytest.mark.process]

SCRIPT = SCRIPTS / "streamed.py"
EPOCHS, BATCH = 2, 12
SECONDS = 120.0


@pytest.mark.parametrize(
    "options",
    [pytest.param((), marks=pytest.mark.long), ("--in-process", "--loader-workers", 2)],
    ids=["restarted", "in process with workers"],
)
def test_each_sample_counts_once_whatever_happens_to_the_group_within_an_epoch(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    slow: Path,
    options: tuple[Any, ...],
) -> None:
    workers = ["w0", "w1", "w2", "w3"]
    for worker in workers:
        agents(worker, SCRIPT, "--slow", slow, "--epochs", EPOCHS, *options, **ENVIRONMENT)
    operator.wait_for("ready", *workers)
    step = 0
    for size in (3, 2, 4, 3):
        operator.declare(*workers[:size], orderly=step > 0)
        events.until_step(step + 4, size, SECONDS)
        step = max(event["step"] for event in events.all(what="step"))
    assert computed_twice(events) == 0, "changes on purpose lose nothing"
    events.kill("w1")
    operator.wait_for("failed", "w1")
    operator.declare(*workers[:3])
    events.until_step(step + 4, 3, SECONDS)
    slow.unlink()
    operator.complete(*workers[:3])
    steps = lineage(events)
    assert sorted(steps) == list(range(1, len(steps) + 1)), "no step is left out"
    worlds = [len(ranks) for ranks in steps.values() if ranks[0]["epoch"] == 0]
    assert [
        size for number, size in enumerate(worlds) if number == 0 or worlds[number - 1] != size
    ] == [3, 2, 4, 3]
    assert computed_twice(events) <= 1, "a killed rank costs the step at hand at most"
    seen = Counter(
        (event["epoch"], sample)
        for ranks in steps.values()
        for event in ranks
        for sample in event["samples"]
    )
    assert seen == Counter((epoch, sample) for epoch in range(EPOCHS) for sample in every_sample())
    assert all(sum(len(event["samples"]) for event in ranks) <= BATCH for ranks in steps.values())
    stock = Counter(
        sample
        for ranks in steps.values()
        for event in ranks
        if event["epoch"] == 0
        for sample in event["stock"]
    )
    twice, never = sum(count > 1 for count in stock.values()), len(every_sample()) - len(stock)
    print(
        "the stock loader in the first epoch: "
        f"{twice} of {len(every_sample())} samples more than once, {never} never"
    )
    assert twice > 0
    assert never > 0
