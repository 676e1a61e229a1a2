"""Agents check their nodes when they are asked to: real processes, real matrix products, real all-reduces."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.torch_features import needs_torchrun_handlers
from tests.worker_image.agents import SCRIPTS, Agent, Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.torch]

Start = Callable[..., Agent]


def reported(operator: ScriptedOperator, worker: str, number: int) -> dict[str, Any]:
    """What a worker reports of a check, once it does."""

    def last() -> dict[str, Any] | None:
        heard = operator.last(worker)
        return heard.check if heard is not None and heard.check["number"] == number else None

    return operator.wait(last)


def test_nodes_are_checked_before_a_group_forms(operator: ScriptedOperator, agents: Start, events: Events) -> None:
    agents("w0", SCRIPTS / "env.py")
    agents("w1", SCRIPTS / "env.py")
    operator.wait_for("ready", "w0", "w1")
    assert reported(operator, "w0", 0) == {"number": 0}

    operator.check(1, "w0", "w1")
    for worker in ("w0", "w1"):
        check = reported(operator, worker, 1)
        assert check["error"] == ""
        assert check["matmulSeconds"] > 0
        assert check["allReduceSeconds"] > 0

    operator.check(2, "w1")
    check = reported(operator, "w1", 2)
    assert (check["allReduceSeconds"], check["error"]) == (None, "")

    operator.check(3, "w0", world_size=2, seconds=5)
    check = reported(operator, "w0", 3)
    assert check["matmulSeconds"] > 0
    assert check["error"].startswith("all-reduces: ")

    operator.check(4, "w0", world_size=2, seconds=600)
    operator.check(5, "w0")
    assert reported(operator, "w0", 5)["error"] == "", "a newer check ends the one before"

    operator.check(6, "w1", world_size=2, seconds=600)
    operator.declare("w0", "w1")
    assert {event["RANK"] for event in events.wait(2, what="env")} == {0, 1}, "a round ends a check"
    assert reported(operator, "w1", 2)["error"] == "", "a check that was ended is not reported"


@needs_torchrun_handlers
@pytest.mark.long
@pytest.mark.parametrize(("first", "state"), [("", "ready"), ("1", "unchecked")], ids=["at any time", "before a set-up"])
def test_under_plain_torchrun_too(operator: ScriptedOperator, agents: Start, events: Events, first: str, state: str) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    variables = {"PET_RDZV_BACKEND": "elastic-pytorch", "ELASTIC_PYTORCH_CHECK_FIRST": first}
    agents("w0", SCRIPTS / "env.py", command=torchrun, **variables)
    operator.wait_for(state, "w0")
    operator.check(1, "w0")
    check = reported(operator, "w0", 1)
    assert check["error"] == ""
    assert check["matmulSeconds"] > 0
    assert operator.states("w0") == [state]
    operator.pass_checks("w0")
    operator.wait_for("ready", "w0")
    operator.declare("w0")
    events.wait(what="env")
