from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
from torch import Tensor, nn
from torch.optim import AdamW

from tests.torch_features import FSDP2, FSDP2_REASON
from tests.worker_image.agents import SCRIPTS, Agent, Agents, Events
from tests.worker_image.running_agent.test_state_changes import lineage, train_on
from tests.worker_image.scripted_operator import ScriptedOperator
from tests.worker_image.scripts.small_texts import SAMPLES, loss_of, new_model, texts, whole_loss

pytestmark = [pytest.mark.torch, pytest.mark.process]

needs_fsdp2 = pytest.mark.skipif(not FSDP2, reason=FSDP2_REASON)
ENVIRONMENT = {
    "USE_LIBUV": 0,
    "ELASTIC_PYTORCH_REST_SECONDS": 10,
    "ELASTIC_PYTORCH_UNIT_REPLICAS": 2,
}


EPOCHS, BATCH = 4, 12
STEPS = EPOCHS * -(-SAMPLES // BATCH)


def start(
    agents: Agents, slow: Path, *workers: str, script: str = "units.py", options: Sequence[str] = ()
) -> list[Agent]:
    arguments = ("--epochs", EPOCHS, "--slow", slow, "--step-seconds", 0.3, *options)
    return [agents(worker, SCRIPTS / script, *arguments, **ENVIRONMENT) for worker in workers]


def finish(operator: ScriptedOperator, events: Events, *workers: str) -> dict[str, list[float]]:
    operator.complete(*workers)
    done = {
        event["worker"]: event["parameters"] for event in events.wait(len(workers), what="done")
    }
    steps = lineage(events)
    assert sorted(steps) == list(range(1, STEPS + 1)), "no step is left out"
    seen: Counter[tuple[int, int]] = Counter()
    for ranks in steps.values():
        first, second = (
            {event["UNIT"]: event for event in ranks if event["UNIT_RANK"] == number}
            for number in (0, 1)
        )
        assert len(first) == len(second) == first[0]["UNITS"]
        assert all(first[unit]["samples"] == second[unit]["samples"] for unit in first), (
            "a unit computes one share"
        )
        seen.update(
            (event["epoch"], sample) for event in first.values() for sample in event["samples"]
        )
    assert seen == {(epoch, sample): 1 for epoch in range(EPOCHS) for sample in range(SAMPLES)}
    assert done.keys() == set(workers)
    return done


def plain_training(loss: Callable[[nn.Module, Tensor, Tensor], Tensor] = loss_of) -> Any:
    """The parameters of one undisturbed process, within what the order of sums may change."""
    model, data = new_model(), texts()
    optimizer = AdamW(model.parameters(), lr=1e-2)
    sampler = elastic.ElasticSampler(data, BATCH, seed=3)
    for _ in sampler.epochs(EPOCHS):
        order = list(chain.from_iterable(sampler))
        for begin in range(0, SAMPLES, BATCH):
            inputs, targets, _ = data[order[begin : begin + BATCH]]
            loss(model, inputs, targets).backward()
            optimizer.step()
            optimizer.zero_grad()
        sampler.load_state_dict(sampler.state_dict() | {"epoch": sampler.epoch + 1})
    parameters = [
        number for parameter in model.parameters() for number in parameter.flatten().tolist()
    ]
    return pytest.approx(parameters, rel=1e-8, abs=1e-10)


def change_units(
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    slow: Path,
    script: str,
    *options: str,
) -> list[Agent]:
    """Trains with three units, two, and three in another order; returns agents by number."""
    workers = [f"w{number}" for number in range(6)]
    started = start(agents, slow, *workers, script=script, options=options)
    operator.begin(*workers)
    train_on(events, 6)
    operator.declare("w0", "w1", "w4", "w5", orderly=True)
    train_on(events, 4)
    operator.declare("w2", "w3", "w0", "w1", "w4", "w5", orderly=True)
    train_on(events, 6, 6)  # until there are copies of its own shards
    computed = Counter(event["step"] for event in events.all(what="step", worker="w0"))
    assert set(computed.values()) == {1}, "every step was computed once"
    return started


@needs_fsdp2
def test_tensor_parallel_units_train_as_one_process_does_and_keep_the_shards_of_a_lost_one(
    shown_in_process: tuple[str, ...],
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    slow: Path,
) -> None:
    options = shown_in_process
    _, _, lost, *_ = change_units(operator, events, agents, slow, "units.py", *options)
    processes = {(event["worker"], event["pid"]) for event in events.all(what="step")}
    assert len(processes) == (6 if options else 6 + 6 + 4), "in_process keeps them"
    lost.kill()
    operator.declare("w0", "w1", "w4", "w5")  # a lost pod takes its unit along
    events.wait(4, what="restored", worker="w0")
    start(agents, slow, "w6", options=options)
    train_on(events, 4)
    operator.wait_for("ready", "w3", "w6")
    operator.declare("w0", "w1", "w4", "w5", "w6", "w3", orderly=True)
    slow.unlink()
    parameters = plain_training()
    assert all(
        each == parameters
        for each in finish(operator, events, "w0", "w1", "w4", "w5", "w6", "w3").values()
    )
    first, *later = [event["step"] for event in events.all(what="restored", worker="w0")]
    assert first == 0
    assert len(later) == 4 and all(step > 0 for step in later), (
        "the state was in the memory of the units that are left"
    )


@pytest.mark.long
@needs_fsdp2
def test_pipelines_train_what_one_process_does(
    operator: ScriptedOperator, events: Events, agents: Agents, slow: Path
) -> None:
    change_units(operator, events, agents, slow, "pipeline.py")
    slow.unlink()
    done = finish(operator, events, "w2", "w3", "w0", "w1", "w4", "w5")
    parameters = plain_training(lambda model, inputs, targets: whole_loss(model(inputs), targets))
    for first, second in (("w2", "w3"), ("w0", "w1"), ("w4", "w5")):
        assert done[first] + done[second] == parameters
