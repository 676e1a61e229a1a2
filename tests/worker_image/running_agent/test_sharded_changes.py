"""A training with a model that no rank has completely, as its group changes: the pods' memory goes on, and no disk is needed."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.torch_features import needs_averages, needs_sharded_tensors
from tests.worker_image.agents import Agent, Events
from tests.worker_image.running_agent.test_state_changes import (
    check_samples,
    computed_twice,
    finish,
    start,
    undisturbed,  # noqa: F401 - a fixture
    until_step,
)
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.torch, pytest.mark.process, needs_sharded_tensors]

Agents = Callable[..., Agent]
WAYS = {
    "fsdp2": ("--sharded",),
    "fsdp2 in process": ("--sharded", "--in-process"),
    "weights": ("--sharded-weights",),
    "weights in process": ("--sharded-weights", "--in-process"),
}


def ways(*shown: str) -> pytest.MarkDecorator:
    """All ways, of which `make test` shows some."""
    return pytest.mark.parametrize(
        "way",
        [
            pytest.param(
                way, id=name, marks=[needs_averages] * name.startswith("fsdp2") + [pytest.mark.long] * (name not in shown)
            )
            for name, way in WAYS.items()
        ],
    )


@ways("fsdp2 in process", "weights")
def test_orderly_changes_lose_nothing(
    way: tuple[str, ...],
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    undisturbed: list[float],  # noqa: F811
) -> None:
    start(agents, operator, 3, *way)
    until_step(events, 5, 3)
    operator.declare("w0", "w2", orderly=True)
    until_step(events, 20, 2)
    operator.declare("w0", "w1", "w2", orderly=True)
    until_step(events, 40, 3)
    operator.declare("w1", "w2", orderly=True)
    parameters = finish(operator, events, "w1", "w2")
    check_samples(events)
    assert computed_twice(events) == 0, "every step was computed once"
    assert parameters == pytest.approx(undisturbed, abs=1e-4)


@ways("fsdp2", "weights in process")
def test_lost_pod_s_shards_come_from_another_pod(
    way: tuple[str, ...],
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    undisturbed: list[float],  # noqa: F811
) -> None:
    lost, *_ = start(agents, operator, 3, *way, "--step-seconds", 0.2, "--fast-after", 40)
    until_step(events, 30, 3)
    lost.kill()
    operator.declare("w1", "w2")
    parameters = finish(operator, events, "w1", "w2")
    check_samples(events)
    assert parameters == pytest.approx(undisturbed, abs=1e-4)
    restored: list[dict[str, Any]] = events.all(what="restored", worker="w1")
    assert 0 < restored[-1]["step"] <= 31
