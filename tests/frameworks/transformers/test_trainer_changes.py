"""The Trainer of transformers as its group changes: elastic, and the stock one beside it."""

from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.resizes import computed_twice
from tests.worker_image.agents import SCRIPTS, Agent, Events
from tests.worker_image.scripted_operator import ScriptedOperator

# It is not imported here: each process of a run of pytest would take seconds for that.
NEEDED = pytest.mark.skipif(
    find_spec("transformers") is None,
    reason="transformers is not installed: `make venv` installs it",
)
pytestmark = [pytest.mark.process, NEEDED]

SCRIPT = Path(__file__).parent / "train.py"
SAMPLES, BATCH = 250, 12
EPOCH_STEPS = -(-SAMPLES // BATCH)
STEPS = 2 * EPOCH_STEPS
ENVIRONMENT = {
    "SCRIPTS": SCRIPTS,
    "OMP_NUM_THREADS": 1,
    "USE_LIBUV": 0,
    "ELASTIC_PYTORCH_GRACE_SECONDS": 60,
    "ELASTIC_PYTORCH_PRELOAD": "transformers.trainer",
}
WAIT_SECONDS = 900.0
TORCH = tuple(int(part) for part in version("torch").split(".")[:2])
Agents = Callable[..., Agent]


def start(agents: Agents, operator: ScriptedOperator, count: int, *options: Any) -> list[Agent]:
    workers = [f"w{number}" for number in range(count)]
    started = [agents(worker, SCRIPT, *options, **ENVIRONMENT) for worker in workers]
    operator.wait_for("ready", *workers, seconds=WAIT_SECONDS)
    operator.declare(*workers)
    return started


def until_step(events: Events, step: int, world: int) -> None:
    events.until_step(step, world, WAIT_SECONDS)


def finish(operator: ScriptedOperator, events: Events, *workers: str) -> dict[str, Any]:
    """Waits for the end of the job; returns what a rank says of it."""
    operator.wait_for("succeeded", *workers, seconds=WAIT_SECONDS)
    operator.end("complete")
    done = events.all(what="done")[-len(workers) :]
    assert len({event["digest"] for event in done}) == 1, "all ranks have the same parameters"
    return done[-1]


def computed(events: Events) -> dict[int, list[dict[str, Any]]]:
    """The ranks' events of each step, of the last group that computed it."""
    steps: dict[int, dict[int, list[dict[str, Any]]]] = {}
    for event in events.all(what="step"):
        steps.setdefault(event["step"], {}).setdefault(event["WORLD_SIZE"], []).append(event)
    last = {}
    for step, groups in steps.items():
        newest = max(groups.values(), key=lambda ranks: max(each["at"] for each in ranks))
        # A group of the same size may have computed it before.
        by_rank = {each["RANK"]: each for each in newest}
        last[step] = list(by_rank.values())
    return last


def counted(events: Events) -> Counter[int]:
    """How often each sample was learned from."""
    return Counter(
        sample
        for ranks in computed(events).values()
        for each in ranks
        for sample in each["samples"]
    )


def losses(done: dict[str, Any], name: str = "loss") -> list[float]:
    return [line[name] for line in done["history"] if name in line]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("undisturbed")
    operator, events = ScriptedOperator(), Events(directory / "events")
    options = ("--step-seconds", 0, "--folder", directory / "output")
    agent = Agent("w0", operator.url, directory, SCRIPT, *options, **ENVIRONMENT)
    try:
        operator.wait_for("ready", "w0", seconds=WAIT_SECONDS)
        operator.declare("w0")
        done = finish(operator, events, "w0")
        agent.wait()
    finally:
        agent.kill()
        operator.go_away()
    assert losses(done)[-1] < losses(done)[0] - 0.5, "it learns"
    return done


def test_resizes_lose_nothing_and_a_killed_rank_a_step_at_most(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    tmp_path: Path,
    undisturbed: dict[str, Any],
) -> None:
    start(agents, operator, 3, "--folder", tmp_path / "output")
    operator.declare("w0", "w1")
    until_step(events, 5, 2)
    operator.declare("w0", "w1", "w2", orderly=True)
    until_step(events, 10, 3)
    operator.declare("w1", "w2", orderly=True)
    until_step(events, 15, 2)
    assert events.all(what="step")[-1]["step"] <= EPOCH_STEPS, "all within an epoch"
    assert computed_twice(events) == 0, "a resize loses no step"
    events.until_step(EPOCH_STEPS + 5, 2, WAIT_SECONDS, worker="w2")
    events.kill("w2")
    operator.wait_for("failed", "w2", seconds=WAIT_SECONDS)
    operator.declare("w1", "w2")
    done = finish(operator, events, "w1", "w2")
    assert computed_twice(events) <= 1
    assert sorted(computed(events)) == list(range(1, STEPS + 1)), "no step is left out"
    assert counted(events) == dict.fromkeys(range(SAMPLES), 2), "each sample once an epoch"
    for name in ("loss", "eval_loss", "train_loss"):
        assert losses(done, name) == pytest.approx(losses(undisturbed, name), abs=1e-5)
    assert done["parameters"] == pytest.approx(undisturbed["parameters"], abs=1e-3)


@pytest.mark.long
@pytest.mark.skipif(TORCH < (2, 6), reason="the stock Trainer does not resume before torch 2.6")
def test_the_stock_trainer_repeats_samples_and_leaves_others_out(
    operator: ScriptedOperator, events: Events, agents: Agents, tmp_path: Path
) -> None:
    """What docs/use/transformers.md compares with, saved every five steps."""
    start(agents, operator, 4, "--stock", "--folder", tmp_path / "output")
    operator.declare("w0", "w1", "w2")
    until_step(events, 7, 3)
    operator.declare("w0", "w1", orderly=True)
    until_step(events, 12, 2)
    operator.declare("w0", "w1", "w2", "w3", orderly=True)
    until_step(events, 13, 4)
    operator.declare("w0", "w1", "w2", orderly=True)
    until_step(events, 18, 3)
    before = computed_twice(events)
    events.until_step(EPOCH_STEPS + 5, 3, WAIT_SECONDS, worker="w2")
    events.kill("w2")
    operator.wait_for("failed", "w2", seconds=WAIT_SECONDS)
    operator.declare("w0", "w1", "w2")
    done = finish(operator, events, "w0", "w1", "w2")
    seen = counted(events)
    assert before > 0, "a resize repeats the steps since the last checkpoint"
    assert seen != dict.fromkeys(range(SAMPLES), 2), "not each sample once an epoch"
    often = Counter(seen[sample] for sample in range(SAMPLES))
    print(
        "steps computed again: "
        f"{before} for three resizes, {computed_twice(events) - before} for the kill"
    )
    print(
        f"of {SAMPLES} samples in two epochs, by how often they came: "
        f"{dict(sorted(often.items()))}; steps {done['step']}"
    )
    print(f"last losses: {losses(done)[-3:]}")
