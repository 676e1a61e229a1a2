"""The jobs whose workers prepare, as the soak starts them: their records, by real agents, and what the checks make of them."""

from dataclasses import replace
from pathlib import Path

import pytest
from soak.checks.preparation import check_set_up_failures
from soak.checks.training import check_repeats
from soak.jobs import SORTS, Sort, arguments, expected
from soak.timeline import groups_of, read_set_up_failures, read_training

from tests.waiting import until
from tests.worker_image.agents import SCRIPTS, Agent, Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.process

ENVIRONMENT = {"USE_LIBUV": 0, "OMP_NUM_THREADS": 1, "ELASTIC_PYTORCH_PREPARE_SECONDS": 300}
SECONDS = 600


def start(worker: str, sort: Sort, operator: ScriptedOperator, folder: Path) -> Agent:
    told = (text.replace("/scripts", str(SCRIPTS)).replace("/checkpoints", str(folder)) for text in arguments(sort, SECONDS))
    return Agent(worker, operator.url, folder, *told, **ENVIRONMENT)


@pytest.mark.parametrize("name", ["prepared", "spare", "newcomers-fail"])
def test_newcomer_prepares_or_fails_while_the_others_train(name: str, tmp_path: Path) -> None:
    failing = bool(SORTS[name].set_up_fails)
    sort = replace(SORTS[name], set_up_seconds=0.5, set_up_fails=float(failing))
    operator, events, agents = ScriptedOperator(), Events(tmp_path / "events"), list[Agent]()
    try:
        agents += [start(worker, sort, operator, tmp_path) for worker in ("w0", "w1")]
        operator.wait_for("ready", "w0", "w1")
        operator.declare("w0", "w1")
        events.until_step(3, 2, agents=agents)
        agents.append(start("w2", sort, operator, tmp_path))
        if failing:
            assert agents[2].wait() == 1
            events.wait(len(events.all(what="step")) + 4, what="step")
        else:
            operator.wait_for("ready", "w2")
            operator.declare("w0", "w2", orderly=True)
            until(lambda: events.all(what="step", worker="w2"), "a step of the newcomer")
        steps, _ = read_training(events.all())
        failures = read_set_up_failures(events.all())
        assert [failure.pod for failure in failures] == ["w2"] * failing
        assert [group.members for group in groups_of(steps)] == [{"w0", "w1"}, {"w0", "w2"}][: 1 if failing else 2]
        assert not list(check_repeats(expected(sort, SECONDS), steps, []))
        assert not list(check_set_up_failures(expected(sort, SECONDS), steps, failures, [], []))
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
        operator.go_away()
