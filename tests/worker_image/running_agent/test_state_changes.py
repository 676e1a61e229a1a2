"""A training with the library, as its group changes: what is lost, and what comes out."""

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.worker_image.agents import SCRIPTS, Agent, Agents, Events, started_agents
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.torch]

SCRIPT = SCRIPTS / "stateful.py"
STEPS = 84  # of two epochs of 500 samples in batches of 12
# However busy this machine is, a worker that can go on in its process has the time for it.
ENVIRONMENT = {
    "USE_LIBUV": 0,
    "ELASTIC_PYTORCH_REST_SECONDS": 10,
    "ELASTIC_PYTORCH_GRACE_SECONDS": 30,
}
OUTCOMES: dict[str, list[float]] = {}  # of undisturbed runs, by backend


def start(agents: Agents, operator: ScriptedOperator, count: int, *options: Any) -> list[Agent]:
    workers = [f"w{number}" for number in range(count)]
    started = [agents(worker, SCRIPT, *options, **ENVIRONMENT) for worker in workers]
    operator.begin(*workers)
    return started


def train_on(events: Events, world: int, steps: int = 2) -> None:
    """Waits until each rank of a group is at a step so many after all that have begun."""
    step = max((event["step"] for event in events.all(what="step")), default=0) + steps
    for rank in range(world):
        events.until_step(step, world, RANK=rank)


def finish(operator: ScriptedOperator, events: Events, *workers: str) -> list[float]:
    operator.complete(*workers)
    done = events.all(what="done")[-len(workers) :]
    assert len({e["digest"] for e in done}) == 1, "all ranks have the same parameters"
    parameters: list[float] = done[-1]["parameters"]
    return parameters


def lineage(events: Events) -> dict[int, list[dict[str, Any]]]:
    """The ranks' events of each step, as it counts: of the last group that computed it."""
    steps: dict[int, list[dict[str, Any]]] = {}
    for event in events.all(what="step"):
        there = steps.setdefault(event["step"], [])
        if there and event["generation"] > there[0]["generation"]:
            there.clear()
        if not there or event["generation"] == there[0]["generation"]:
            there.append(event)
    return steps


def check_samples(events: Events) -> None:
    steps = lineage(events)
    assert sorted(steps) == list(range(1, STEPS + 1)), "no step is left out"
    seen: Counter[tuple[int, int]] = Counter()
    for ranks in steps.values():
        samples = [(event["epoch"], sample) for event in ranks for sample in event["samples"]]
        assert len(samples) in (12, 500 % 12), "the batch is the same whatever the group"
        seen.update(samples)
    assert seen == {(epoch, sample): 1 for epoch in range(2) for sample in range(500)}, (
        "each sample once an epoch"
    )


def computed_twice(events: Events) -> int:
    """How many steps more than one group has computed.

    Of ranks that commit: others may be ahead of what those have.
    """
    groups: dict[int, set[int]] = {}
    for event in events.all(what="step", LOCAL_RANK=0):
        groups.setdefault(event["step"], set()).add(event["generation"])
    return sum(len(generations) - 1 for generations in groups.values())


@pytest.fixture
def undisturbed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[float]:
    """The parameters at the end of two undisturbed workers; on a GPU, what one has there."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    backend = "nccl" if parameters.get("backend") == "nccl" else "gloo"
    if backend not in OUTCOMES:
        directory = tmp_path_factory.mktemp("undisturbed")
        OUTCOMES[backend] = run_undisturbed(directory, 2, "--backend", backend)
        check_samples(Events(directory / "events"))
    return OUTCOMES[backend]


def run_undisturbed(directory: Path, count: int, *options: Any) -> list[float]:
    operator, events = ScriptedOperator(), Events(directory / "events")
    with started_agents(operator.url, directory) as agents:
        started = start(agents, operator, count, "--step-seconds", 0, *options)
        parameters = finish(operator, events, *(agent.worker for agent in started))
    operator.go_away()
    return parameters


def test_planned_changes_lose_nothing_and_each_loss_a_step_at_most(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    undisturbed: list[float],
    slow: Path,
    option: tuple[str, ...],
    backend: str,
) -> None:
    """Rank 0 leaves, is new, is killed, and is lost with its pod."""
    _, lost, leaving = start(
        agents, operator, 3, "--backend", backend, "--slow", slow, "--step-seconds", 0.3, *option
    )
    train_on(events, 3)
    for workers in (("w2", "w0"), ("w1", "w2", "w0"), ("w0",), ("w1", "w2", "w0")):
        operator.declare(*workers, orderly=True)
        train_on(events, len(workers))
    leaving.signal()
    operator.wait_for("leaving", "w2")
    operator.declare("w1", "w0", orderly=True)
    train_on(events, 2)
    assert computed_twice(events) == 0, "every step was computed once"
    events.kill("w1")
    operator.wait_for("failed", "w1")
    operator.declare("w1", "w0")
    train_on(events, 2)
    assert computed_twice(events) <= 1
    lost.kill()
    operator.declare("w0")
    slow.unlink()
    parameters = finish(operator, events, "w0")
    assert leaving.wait() == 143
    check_samples(events)
    assert computed_twice(events) <= 2
    assert parameters == pytest.approx(undisturbed, abs=1e-4)
    assert events.processes(what="step", worker="w0") == (1 if option else 8)


@pytest.mark.long
def test_commits_that_cost_much_are_further_apart_and_a_stop_still_loses_nothing(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    undisturbed: list[float],
    option: tuple[str, ...],
) -> None:
    start(agents, operator, 2, "--every", 0, "--ballast-bytes", 8 << 20, *option)
    events.until_step(20, 2)
    operator.declare("w1", orderly=True)
    events.until_step(35, 1)
    operator.declare("w0", "w1", orderly=True)
    events.until_step(50, 2)
    assert computed_twice(events) == 0, "a stop on purpose commits"
    victim = events.all(what="step", worker="w1")[-1]
    assert victim["interval"] > 1
    os.kill(victim["pid"], signal.SIGKILL)
    operator.wait_for("failed", "w1")
    operator.declare("w0", "w1")
    assert finish(operator, events, "w0", "w1") == pytest.approx(undisturbed, abs=1e-4)
    check_samples(events)
    assert computed_twice(events) <= max(event["interval"] for event in events.all(what="step"))


def test_new_group_goes_on_from_the_checkpoint_if_all_pods_are_gone(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    undisturbed: list[float],
    tmp_path: Path,
) -> None:
    first = start(agents, operator, 2, "--folder", tmp_path / "checkpoints")
    events.until_step(40, 2)
    for agent in first:
        agent.kill()
    for worker in ("w3", "w4"):
        agents(worker, SCRIPT, "--folder", tmp_path / "checkpoints", **ENVIRONMENT)
    operator.begin("w3", "w4")
    assert finish(operator, events, "w3", "w4") == undisturbed
    check_samples(events)
    assert 0 < events.all(what="restored", worker="w3")[0]["step"] <= 40
    assert list((tmp_path / "checkpoints").glob(f"*s{STEPS:09}*")), (
        "the last state is on disk when the job is done"
    )


def test_script_that_raises_is_started_anew_and_its_peer_is_not(
    operator: ScriptedOperator, events: Events, agents: Agents, undisturbed: list[float]
) -> None:
    start(agents, operator, 2, "--in-process", "--fail-at", 30)
    operator.wait_for("failed", "w0", "w1")
    assert operator.last("w1").failure["message"] == "ValueError: told to fail"
    assert "Connection" in operator.last("w0").failure["message"]
    operator.declare("w0", "w1")
    assert finish(operator, events, "w0", "w1") == undisturbed
    assert events.processes(what="step", worker="w0") == 1
    assert events.processes(what="step", worker="w1") == 2


@pytest.mark.long
def test_several_workers_in_each_pod(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    undisturbed: list[float],
    backend: str,
) -> None:
    for worker in ("w0", "w1"):
        options = ("--in-process", "--backend", backend)
        agents(worker, "--nproc-per-node=2", SCRIPT, *options, **ENVIRONMENT)
    operator.begin("w0", "w1")
    events.until_step(10, 4)
    operator.declare("w1", orderly=True)
    events.until_step(20, 2)
    operator.declare("w0", "w1", orderly=True)
    events.until_step(30, 4)
    assert computed_twice(events) == 0
    os.kill(events.all(what="step", RANK=3)[-1]["pid"], signal.SIGKILL)
    operator.wait_for("failed", "w1")
    operator.declare("w0", "w1")
    operator.complete("w0", "w1")
    check_samples(events)
    assert computed_twice(events) <= 1
    done = events.all(what="done")
    assert {event["digest"] for event in done} == {done[0]["digest"]}
    assert done[0]["parameters"] == pytest.approx(undisturbed, abs=1e-4)
    assert events.processes(what="step", worker="w0", LOCAL_RANK=0) == 1


@pytest.mark.long
def test_each_of_several_trainings_goes_on_from_its_own_state(
    operator: ScriptedOperator, events: Events, agents: Agents, option: tuple[str, ...]
) -> None:
    for worker in ("w0", "w1", "w2"):
        agents(worker, SCRIPTS / "trainings.py", *option, **ENVIRONMENT)
    operator.begin("w0", "w1", "w2")
    events.wait(what="step", training=1, step=10)
    assert {e["step"] for e in events.all(what="restored")} == {0}, (
        "the second training begins fresh"
    )
    operator.declare("w1", "w2", orderly=True)  # without rank 0, which alone has set what is best
    events.wait(what="restored", training=1, WORLD_SIZE=2, count=2)
    restored = events.all(what="restored", WORLD_SIZE=2)
    assert {(e["step"], e["best"]) for e in restored if e["training"] == 0} == {(100, 100)}, (
        "what is done is not done again"
    )
    ((step, best),) = {(e["step"], e["best"]) for e in restored if e["training"] == 1}
    assert 10 <= step == best
    operator.complete("w1", "w2")
    steps = [(e["training"], e["step"]) for e in events.all(what="step", worker="w1")]
    assert steps == [(number, step) for number in range(2) for step in range(1, 101)], (
        "each step was computed once"
    )


def test_group_that_waits_for_a_pod_that_never_joins_is_left_in_the_living_processes(
    operator: ScriptedOperator, events: Events, agents: Agents
) -> None:
    """As when a spare was on the lost worker's node: its end is known after it was listed.

    Torch counts the groups of a process in their names, and only ranks that count alike find each
    other: each of those that are left has been in another number of groups than the other.
    """
    started = [
        agents(worker, SCRIPT, "--in-process", "--epochs", 1000, **ENVIRONMENT)
        for worker in ("w0", "w1", "w2")
    ]
    operator.wait_for("ready", "w0", "w1", "w2")
    operator.declare("w0")
    train_on(events, 1, 6)
    started[2].signal(signal.SIGSTOP)
    for waiting, left in (
        (("w2", "w0"), ("w1", "w0")),
        (("w1", "w0", "w2"), ("w1", "w0")),
        (("w2", "w0", "w1"), ("w0", "w1")),
    ):
        # As growth is, after a step.
        number = operator.declare(*waiting, orderly=len(waiting) > len(left))
        operator.wait_for("running", *set(waiting) - {"w2"}, number=number)
        time.sleep(0.5)  # until their processes wait for the store, or for the third one
        operator.declare(*left)
        train_on(events, 2, 6)
    assert events.processes(what="step", worker="w0") == 1
    assert events.processes(what="step", worker="w1") == 1


@pytest.mark.long
def test_worker_that_hangs_in_leaving_its_group_is_started_again(
    operator: ScriptedOperator, events: Events, agents: Agents, undisturbed: list[float]
) -> None:
    """A boundary may be waited for for five minutes, but not that."""
    for worker in ("w0", "w1"):
        options = ("--in-process", *(["--hang-in-leaving"] if worker == "w0" else []))
        agents(worker, SCRIPT, *options, **(ENVIRONMENT | {"ELASTIC_PYTORCH_GRACE_SECONDS": 600}))
    operator.begin("w0", "w1")
    events.until_step(10, 2)
    operator.declare("w0", orderly=True)
    events.until_step(20, 1)
    parameters = finish(operator, events, "w0")
    check_samples(events)
    assert computed_twice(events) == 0
    assert parameters == pytest.approx(undisturbed, abs=1e-4)
    assert events.processes(what="step", worker="w0") == 2


def test_worker_that_dies_as_it_waits_fails_nothing_and_the_last_rank_0_saves_the_state(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    undisturbed: list[float],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "checkpoints"
    options = ("--open-ended", "--folder", folder, "--flush-seconds", 1000)
    start(agents, operator, 2, "--in-process", *options)
    events.until_step(10, 2)
    operator.declare("w0", orderly=True)
    operator.wait_for("ready", "w1")
    events.kill("w1")
    events.until_step(20, 1)
    operator.declare("w0", "w1", orderly=True)
    events.until_step(60, 2)
    operator.declare("w1", orderly=True)
    parameters = finish(operator, events, "w1")
    check_samples(events)
    assert computed_twice(events) == 0
    assert parameters == pytest.approx(undisturbed, abs=1e-4)
    assert "failed" not in operator.states("w0") + operator.states("w1")
    assert events.processes(what="step", worker="w1") == 2
    assert list(folder.glob(f"*s{STEPS:09}*"))


@pytest.mark.long
def test_group_that_in_process_cannot_make_again_is_refused(
    operator: ScriptedOperator, events: Events, agents: Agents
) -> None:
    start(agents, operator, 1, "--in-process", "--early-group")
    operator.wait_for("failed", "w0")
    assert "call init_process_group inside" in operator.last("w0").failure["message"]
