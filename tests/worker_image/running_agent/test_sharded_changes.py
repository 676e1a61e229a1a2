"""A training whose model no rank has all of goes on from the pods' memory, without a disk."""

from pathlib import Path
from typing import Any

import pytest

from tests.torch_features import FSDP2_AVERAGES, needs_averages, needs_sharded_tensors
from tests.worker_image.agents import Agents, Events
from tests.worker_image.running_agent.test_state_changes import (
    check_samples,
    computed_twice,
    finish,
    start,
    train_on,
    undisturbed,  # noqa: F401 - a fixture
)
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.torch, pytest.mark.process, needs_sharded_tensors]

# FSDP2 where there is one, and elsewhere, as in `make test-variants`, weights that a script shards
# itself.
FSDP2 = [needs_averages]
WEIGHTS = [pytest.mark.long] * FSDP2_AVERAGES


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(("--sharded",), id="fsdp2", marks=[*FSDP2, pytest.mark.long]),
        pytest.param(("--sharded", "--in-process"), id="fsdp2 in process", marks=FSDP2),
        pytest.param(("--sharded-weights",), id="weights", marks=WEIGHTS),
        pytest.param(("--sharded-weights", "--in-process"), id="weights in process", marks=WEIGHTS),
    ],
)
def test_orderly_changes_lose_nothing_and_a_lost_pod_s_shards_come_from_another_pod(
    way: tuple[str, ...],
    operator: ScriptedOperator,
    events: Events,
    agents: Agents,
    undisturbed: list[float],  # noqa: F811
    slow: Path,
) -> None:
    lost, *_ = start(agents, operator, 3, *way, "--slow", slow, "--step-seconds", 0.3)
    train_on(events, 3)
    operator.declare("w2", "w1", orderly=True)
    train_on(events, 2)
    operator.declare("w0", "w1", "w2", orderly=True)
    train_on(events, 3, 6)  # until there are copies of its own shards
    assert computed_twice(events) == 0, "every step was computed once"
    lost.kill()
    newest = max(event["step"] for event in events.all(what="step"))
    operator.declare("w1", "w2")
    slow.unlink()
    parameters = finish(operator, events, "w1", "w2")
    check_samples(events)
    assert parameters == pytest.approx(undisturbed, abs=1e-4)
    restored: list[dict[str, Any]] = events.all(what="restored", worker="w1")
    assert 0 < restored[-1]["step"] <= newest
