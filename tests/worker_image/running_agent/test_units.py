"""Groups of units of several pods: what the processes are told of them as units join and leave, and what becomes of a training."""

from collections.abc import Callable

import pytest

from tests.worker_image.agents import SCRIPTS, Agent, Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.torch, pytest.mark.process]

Agents = Callable[..., Agent]
ENVIRONMENT = {"USE_LIBUV": 0, "OMP_NUM_THREADS": 1, "ELASTIC_PYTORCH_REST_SECONDS": 10, "ELASTIC_PYTORCH_UNIT_REPLICAS": 2}


def test_processes_know_their_unit_in_each_group(operator: ScriptedOperator, events: Events, agents: Agents) -> None:
    """They join with `in_process`, and have been prepared."""
    for worker in ("w0", "w1", "w2", "w3"):
        script = (SCRIPTS / "prepares.py", "--in-process", "--world", 4)
        agents(worker, *script, **ENVIRONMENT, ELASTIC_PYTORCH_PREPARE_SECONDS=600)
    operator.wait_for("ready", "w0", "w1", "w2", "w3")
    operator.declare("w0", "w1")
    events.until_step(3, 2, 60.0)
    operator.declare("w2", "w3", "w0", "w1", orderly=True)
    events.wait(4, what="group", size=4)
    told = {size: {event["worker"]: event["units"] for event in events.all(what="group", size=size)} for size in (2, 4)}
    assert told == {
        2: {"w0": [0, 1, 0], "w1": [0, 1, 1]},
        4: {"w2": [0, 2, 0], "w3": [0, 2, 1], "w0": [1, 2, 0], "w1": [1, 2, 1]},
    }
