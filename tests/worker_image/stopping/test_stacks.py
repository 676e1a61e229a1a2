import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from elastic_pytorch.stopping.stacks import children
from elastic_pytorch_client.training_processes import container_command

from tests.torch_features import needs_torchrun_handlers
from tests.waiting import until
from tests.worker_image.agents import JOINING, NEW_AGENT, SCRIPTS, Agent, Agents, Events, program
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.torch]


def wait_for_text(agent: Agent, *words: str) -> str:
    until(lambda: all(word in agent.text() for word in words), f"{words} in the log")
    return agent.text()


def test_process_that_ends_while_it_is_looked_at_has_no_children() -> None:
    program = shutil.which("true")
    assert program is not None
    for _ in range(100):
        pid = os.posix_spawn(program, [program], os.environ)
        reaping = threading.Thread(target=os.waitpid, args=(pid, 0))
        reaping.start()
        while reaping.is_alive():
            assert children(pid) == []


def test_a_worker_stuck_in_a_collective_and_one_stuck_in_its_script_show_where(
    operator: ScriptedOperator, agents: Agents, events: Events
) -> None:
    waiting, sleeping = (agents(worker, SCRIPTS / "stuck.py") for worker in ("w0", "w1"))
    operator.begin("w0", "w1")
    events.wait(what="waits"), events.wait(what="stuck")
    time.sleep(0.3)  # from the event to the collective
    for _ in range(2):
        operator.ask_for_stacks()
        text = wait_for_text(waiting, "in all_reduce", "stuck.py")
        assert "asked for stacks of 1 workers: pids " in text
        assert "stacks of rank 0 (local rank 0), pid " in text
        text = wait_for_text(sleeping, "in stuck_here")
        assert "stacks of rank 1 (local rank 0), pid " in text
        assert text.count("(most recent call first):") >= 2, "all threads"
    operator.wait(lambda: waiting.text().count("asked for stacks") == 2)
    time.sleep(0.5)
    assert {operator.last(w).state for w in ("w0", "w1")} == {"running"}
    assert not events.all(what="usr1") and not events.all(what="usr2")


def test_agents_report_where_their_ranks_stand(
    operator: ScriptedOperator, agents: Agents, events: Events
) -> None:
    workers = ("w0", "w1", "w2")
    for worker in workers:
        agents(worker, SCRIPTS / "hang_places.py", "loader")
    operator.begin(*workers)
    pids = {event["RANK"]: event["pid"] for event in events.wait(3, what="hangs")}

    def standing() -> list[tuple[str, str, str]]:
        operator.ask_for_stacks()
        time.sleep(1)
        told = [
            place
            for worker in workers
            for place in (operator.last(worker).places or {}).get("byLocalRank", [])
        ]
        return [
            (place["kind"], place["operation"], place["frame"].rpartition(" ")[2]) for place in told
        ]

    waits, loads = ("collective", "all_reduce", "step"), ("dataLoader", "", "__getitem__")
    until(
        lambda: standing() == [waits, waits, loads], lambda: f"the hang; they are at {standing()}"
    )
    os.kill(pids[1], signal.SIGSTOP)
    until(
        lambda: standing() == [waits, ("stopped", "", ""), loads],
        lambda: f"the stopped rank; they are at {standing()}",
    )
    os.kill(pids[1], signal.SIGCONT)
    until(
        lambda: standing() == [waits, waits, loads],
        lambda: f"the rank that goes on; they are at {standing()}",
    )
    operator.declare(*workers)
    operator.wait(lambda: [operator.last(worker).places for worker in workers] == [None] * 3)


def test_users_may_ask_for_the_stacks_of_warm_workers_and_the_training_goes_on(
    operator: ScriptedOperator, agents: Agents, events: Events
) -> None:
    worker = f"w{os.getpid()}"  # no other test's
    agent = agents(worker, "--nproc-per-node=2", SCRIPTS / "stuck.py", "--alone", command=NEW_AGENT)
    operator.begin(worker)
    stuck = events.wait(2, what="stuck")
    environment = {**os.environ, "ELASTIC_PYTORCH_WORKER": worker}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, *container_command()[1:]],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        told = json.loads(done.stdout)
        assert set(told) == {str(event["pid"]) for event in stuck}
        assert all("in stuck_here\n" in stack for stack in told.values()), told
    assert "in stuck_here" not in agent.text(), "the log has none of it"
    assert operator.last(worker).state == "running"


@pytest.mark.long
def test_workers_that_were_started_anew_answer_and_programs_are_left_alone(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    sleep = program(tmp_path / "sleep", "exec sleep 600")
    stuck = f"{sys.executable} {SCRIPTS / 'stuck.py'} --alone\nexit 5"
    in_a_shell = program(tmp_path / "shell", stuck)
    spawned = agents(
        "w0", "--nproc-per-node=2", "--start-method=spawn", SCRIPTS / "stuck.py", "--alone"
    )
    asleep = agents("w1", "--nproc-per-node=2", "--no-python", sleep)
    shell = agents("w2", "--nproc-per-node=2", "--no-python", in_a_shell)
    operator.begin("w0", "w1", "w2")
    events.wait(4, what="stuck")
    operator.ask_for_stacks()
    text = wait_for_text(spawned, "stacks of rank 1 (local rank 1), pid ", "in stuck_here")
    operator.wait(lambda: spawned.text().count("in stuck_here") == 2)
    assert "stacks of rank 0 (local rank 0), pid " in text
    wait_for_text(asleep, "no stacks of rank 3 (local rank 1): pid ")
    operator.wait(lambda: shell.text().count("in stuck_here") == 2)
    time.sleep(0.5)
    states = {worker: operator.last(worker).state for worker in ("w0", "w1", "w2")}
    assert set(states.values()) == {"running"}, states


@needs_torchrun_handlers
def test_plain_torchrun_has_its_workers_answer(
    operator: ScriptedOperator, agents: Agents, events: Events
) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    agent = agents(
        "w0", "--nproc-per-node=2", SCRIPTS / "stuck.py", "--alone", command=torchrun, **JOINING
    )
    operator.begin("w0")
    events.wait(2, what="stuck")
    heard = operator.last("w0")
    assert heard is not None and heard.localWorldSize == 2
    assert {event["pid"] for event in events.all(what="stuck")} == set(children(agent.process.pid))
    operator.ask_for_stacks()
    operator.wait(lambda: agent.text().count("in stuck_here") == 2)
    wait_for_text(agent, "stacks of rank 0, pid ", "stacks of rank 1, pid ")


def test_what_was_asked_of_others_is_not_asked_of_a_new_agent(
    operator: ScriptedOperator, agents: Agents, events: Events
) -> None:
    operator.dump = 7
    agent = agents("w0", SCRIPTS / "stuck.py", "--alone")
    operator.begin("w0")
    events.wait(what="stuck")
    operator.ask_all()
    time.sleep(1)
    assert "asked for stacks" not in agent.text()
    operator.dump = 0  # a new operator, which counts anew
    operator.ask_all()
    time.sleep(0.5)
    operator.ask_for_stacks()
    wait_for_text(agent, "asked for stacks of 1 workers", "in stuck_here")


@pytest.mark.parametrize(
    "own",
    [
        pytest.param("raise ImportError('of its own')", marks=pytest.mark.long),
        "import os; os.environ['SITE'] = 'image'",
    ],
)
def test_a_sitecustomize_of_the_image_runs_as_ever(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path, own: str
) -> None:
    usual = os.environ.get("PYTHONPATH")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(own)
    (tmp_path / "show.py").write_text(
        f"import os, sys\nsys.path.insert(0, {str(SCRIPTS)!r})\nfrom events import event\n"
        "event('shown', site=os.environ.get('SITE'), path=os.environ.get('PYTHONPATH'), "
        "cold=[p for p in sys.path if 'cold_start' in p])\n"
    )
    with_site = os.pathsep.join(filter(None, [str(tmp_path / "site"), usual]))
    agents("w0", "--start-method=spawn", tmp_path / "show.py", PYTHONPATH=with_site)
    agents("w1", "--start-method=spawn", tmp_path / "show.py")
    operator.begin("w0", "w1")
    shown = {event["worker"]: event for event in events.wait(2, what="shown")}
    assert (shown["w0"]["path"], shown["w1"]["path"]) == (with_site, usual)
    assert shown["w0"]["site"] == ("image" if "SITE" in own else None)
    assert shown["w0"]["cold"] == shown["w1"]["cold"] == []
