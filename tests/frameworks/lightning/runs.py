"""Lightning under real agents: 3 -> 2 -> 4 -> 3 workers within an epoch, then a killed rank."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.worker_image.agents import SCRIPTS, Agents, Events
from tests.worker_image.scripted_operator import ScriptedOperator

SCRIPT = Path(__file__).parent / "scripts" / "train.py"
SAMPLES, EPOCHS = 400, 2
# Four processes that import Lightning, on a machine that does other things, too.
WAIT_SECONDS = 900.0
ENVIRONMENT = {
    "SCRIPTS": SCRIPTS,
    "USE_LIBUV": 0,
    "OMP_NUM_THREADS": 1,
    "ELASTIC_PYTORCH_GRACE_SECONDS": 30,
    "ELASTIC_PYTORCH_PRELOAD": "lightning.pytorch",
}


def train_alone(folder: Path, *options: Any) -> Events:
    """A run that nothing happens to: one process, no agent."""
    events = Events(folder / "events")
    environment = {
        "SCRIPTS": SCRIPTS,
        "EVENTS": events.path,
        "WORKER": "alone",
        "OMP_NUM_THREADS": 1,
    }
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ELASTIC_PYTORCH_", "PET_"))
    }
    subprocess.run(
        [
            sys.executable,
            str(SCRIPT),
            "--folder",
            str(folder),
            "--step-seconds",
            "0",
            *map(str, options),
        ],
        check=True,
        timeout=WAIT_SECONDS,
        cwd=folder,
        env=inherited | {name: str(value) for name, value in environment.items()},
    )
    return events


def train_resized(
    operator: ScriptedOperator, events: Events, agents: Agents, *options: Any, steps_each: int = 6
) -> None:
    """Goes through the resizes and the loss, some steps each, and on to the end."""
    for worker in ("w0", "w1", "w2", "w3"):
        agents(worker, SCRIPT, *options, **ENVIRONMENT)
    operator.wait_for("ready", "w0", "w1", "w2", "w3", seconds=WAIT_SECONDS)
    operator.declare("w0", "w1", "w2")
    step = until_step(events, steps_each, 3)
    operator.declare("w0", "w1", orderly=True)
    step = until_step(events, step + steps_each, 2)
    operator.declare("w0", "w1", "w2", "w3", orderly=True)
    step = until_step(events, step + steps_each, 4)
    operator.declare("w0", "w1", "w3", orderly=True)
    step = until_step(events, step + steps_each, 3)
    events.until_step(step, 3, WAIT_SECONDS, worker="w3")
    events.kill("w3")
    operator.wait_for("failed", "w3", seconds=WAIT_SECONDS)
    operator.declare("w0", "w1", "w3")
    operator.wait_for("succeeded", "w0", "w1", "w3", seconds=WAIT_SECONDS)
    operator.end("complete")


def until_step(events: Events, step: int, world: int) -> int:
    """Waits until a group of a size has come that far, and returns how far it is."""
    events.until_step(step, world, WAIT_SECONDS)
    return last_step(events)


def last_step(events: Events) -> int:
    return max(event["step"] for event in events.all(what="step"))


def lineage(events: Events) -> dict[int, list[dict[str, Any]]]:
    """The ranks' events of each step, as it counts: of the last group that computed it."""
    newest: dict[int, float] = {}
    for event in events.all(what="step"):
        newest[event["step"]] = max(newest.get(event["step"], 0), event["generation"])
    return {
        step: [
            event
            for event in events.all(what="step", step=step)
            if event["generation"] == generation
        ]
        for step, generation in sorted(newest.items())
    }


def check_samples(events: Events) -> None:
    steps = lineage(events)
    assert list(steps) == list(range(1, len(steps) + 1))
    seen = Counter(
        (e["epoch"], sample) for ranks in steps.values() for e in ranks for sample in e["samples"]
    )
    assert seen == {(epoch, sample): 1 for epoch in range(EPOCHS) for sample in range(SAMPLES)}


def curve(events: Events) -> list[tuple[float, float, int]]:
    """Of each step: its mean loss, the learning rate, and the rank's batch in the epoch."""
    return [
        (
            sum(e["loss"] for e in ranks) / sum(len(e["samples"]) for e in ranks),
            ranks[0]["rate"],
            ranks[0]["batch"],
        )
        for ranks in lineage(events).values()
    ]


def computed_twice(events: Events) -> list[int]:
    groups: dict[int, set[float]] = {}
    for event in events.all(what="step"):
        groups.setdefault(event["step"], set()).add(event["generation"])
    return [step for step, generations in groups.items() if len(generations) > 1]


def changes(events: Events) -> list[tuple[str, int, float]]:
    """Of each change: the sizes, the steps computed again, and the seconds between two steps."""
    groups: dict[float, list[dict[str, Any]]] = {}
    for event in events.all(what="step", RANK=0):
        groups.setdefault(event["generation"], []).append(event)
    found = []
    for before, after in pairwise(groups.values()):
        sizes = f"{before[-1]['WORLD_SIZE']} -> {after[0]['WORLD_SIZE']}"
        found.append(
            (
                sizes,
                max(0, before[-1]["step"] - after[0]["step"] + 1),
                after[0]["at"] - before[-1]["at"],
            )
        )
    return found


def uses(events: Events, epoch: int) -> Counter[int]:
    """How often each sample was used in an epoch, by the steps that count."""
    ranks = (e for each in lineage(events).values() for e in each if e["epoch"] == epoch)
    return Counter(sample for e in ranks for sample in e["samples"])
