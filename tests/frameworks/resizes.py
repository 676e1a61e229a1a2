"""A training with real agents whose group changes in order, and then loses a process."""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.paths import ROOT
from tests.worker_image.agents import Agent, Agents, Events, started_agents
from tests.worker_image.scripted_operator import ScriptedOperator

WAIT_SECONDS = 600.0  # a process imports its framework, on a machine that does other things, too
# In the order in which Python looks: the sources of this checkout, then what the scripts of the
# tests share.
PYTHONPATH = os.pathsep.join(
    str(ROOT / folder)
    for folder in ("worker_image", "tests/worker_image/scripts", "examples/torchtitan")
)
ENVIRONMENT = {
    "USE_LIBUV": 0,
    "OMP_NUM_THREADS": 1,
    "PYTHONPATH": PYTHONPATH,
    "ELASTIC_PYTORCH_REST_SECONDS": 10,
    "ELASTIC_PYTORCH_GRACE_SECONDS": 300,
}


def until_step(events: Events, step: int, world: int, started: list[Agent]) -> None:
    events.until_step(step, world, WAIT_SECONDS, started)


def start(
    operator: ScriptedOperator, agents: Agents, count: int, script: Path, *options: Any
) -> list[Agent]:
    workers = [f"w{number}" for number in range(count)]
    started = [agents(worker, script, *options, **ENVIRONMENT) for worker in workers]
    operator.wait_for("ready", *workers, seconds=WAIT_SECONDS)
    return started


def finish(operator: ScriptedOperator, *workers: str) -> None:
    operator.wait_for("succeeded", *workers, seconds=WAIT_SECONDS)
    operator.end("complete")


def train_undisturbed(directory: Path, script: Path, *options: Any) -> Events:
    """Trains with two workers to the end."""
    directory.mkdir()
    operator, events = ScriptedOperator(), Events(directory / "events")
    try:
        with started_agents(operator.url, directory) as agents:
            start(operator, agents, 2, script, "--folder", directory / "checkpoints", *options)
            operator.declare("w0", "w1")
            finish(operator, "w0", "w1")
    finally:
        operator.go_away()
    return events


def train_resized(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    script: Path,
    *options: Any,
    sizes: Sequence[int] = (2, 4, 2),
    steps_each: int = 3,
) -> tuple[int, int]:
    """Trains in groups of these sizes, some steps each.

    Then the last one loses a process, and trains to the end.

    Returns how many steps were computed twice: by the resizes, and by the loss.
    """
    started = start(operator, agents, max(sizes), script, *options)
    step = 0
    for size in sizes:
        group = [f"w{number}" for number in range(size)]
        operator.declare(*group, orderly=step > 0)
        until_step(events, step + steps_each, size, started)
        step = max(event["step"] for event in events.all(what="step"))
    by_resizes = computed_twice(events)
    victim = group[-1]
    events.until_step(step, len(group), WAIT_SECONDS, started, worker=victim)
    os.kill(events.all(what="step", worker=victim)[-1]["pid"], signal.SIGKILL)
    operator.wait_for("failed", victim, seconds=WAIT_SECONDS)
    operator.declare(*group)
    finish(operator, *group)
    return by_resizes, computed_twice(events) - by_resizes


def lineage(events: Events) -> dict[int, list[dict[str, Any]]]:
    """The ranks' events of each step, as it counts: of the last group that computed it."""
    steps: dict[int, list[dict[str, Any]]] = {}
    for event in events.all(what="step"):
        steps.setdefault(event["step"], []).append(event)
    return {step: told[-told[-1]["WORLD_SIZE"] :] for step, told in steps.items()}


def computed_twice(events: Events) -> int:
    """How many steps more than one group has computed."""
    return sum(
        count - 1
        for count in Counter(event["step"] for event in events.all(what="step", RANK=0)).values()
    )


def samples_of(events: Events, per_epoch: int, batch_size: int) -> Counter[tuple[int, int]]:
    """How often each sample has counted, by epoch; the epochs follow each other without a gap."""
    seen: Counter[tuple[int, int]] = Counter()
    for step, ranks in lineage(events).items():
        assert sorted(event["RANK"] for event in ranks) == list(range(len(ranks)))
        samples = [sample for event in ranks for sample in event["samples"]]
        assert len(samples) == batch_size, f"step {step}: the batch is the same whatever the group"
        seen.update(((step - 1) * batch_size // per_epoch, sample) for sample in samples)
    return seen


def losses(events: Events) -> list[float]:
    steps = lineage(events)
    return [
        sum(event["loss"] for event in steps[step]) / len(steps[step]) for step in sorted(steps)
    ]
