import signal
import time
from pathlib import Path

import pytest

from tests.worker_image.agents import NEW_AGENT, SCRIPTS, Agents, Events
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.process


def test_a_job_completes_when_the_operator_says_so(
    operator: ScriptedOperator, agents: Agents, events: Events, tmp_path: Path
) -> None:
    finish = tmp_path / "finish"
    both = [agents(w, SCRIPTS / "train.py", "--finish", finish) for w in ("w0", "w1")]
    operator.begin("w0", "w1")
    events.wait(2, what="step", step=3)
    finish.touch()
    operator.wait_for("succeeded", "w0", "w1")
    number = operator.declare("w1", "w0")  # somebody else had not finished: once more
    operator.wait_for("succeeded", "w0", "w1", number=number)
    assert all(agent.process.poll() is None for agent in both)
    operator.end("complete")
    assert [agent.wait() for agent in both] == [0, 0]
    assert [agent.termination_log.read_text() for agent in both] == ["", ""]
    assert len(events.all(what="done")) == 4


def test_a_failed_job_ends_with_the_reason(
    operator: ScriptedOperator, agents: Agents, events: Events
) -> None:
    failing = agents("w0", SCRIPTS / "env.py", "fail")
    stubborn = agents("w1", SCRIPTS / "stubborn.py", ELASTIC_PYTORCH_GRACE_SECONDS=1)
    operator.begin("w0", "w1")
    operator.wait_for("failed", "w0")
    events.wait(what="start")
    operator.end("failed")
    assert [failing.wait(), stubborn.wait()] == [1, 1]
    assert failing.termination_log.read_text().startswith(
        "ValueError: boom on rank 0\nTraceback (most recent call last):"
    )
    assert events.all(what="ignored")


def test_sigterm_drains(operator: ScriptedOperator, agents: Agents, events: Events) -> None:
    leaving = agents("w0", "--monitor-interval=2", SCRIPTS / "train.py", "--save")
    staying = agents("w1", "--monitor-interval=2", SCRIPTS / "train.py", "--save")
    operator.begin("w0", "w1")
    events.wait(2, what="step", step=2)
    leaving.signal()
    operator.wait_for("leaving", "w0")
    assert not events.all(what="saved")  # it trains on until the operator has spoken
    leaving.signal()
    # As all are alive, a worker may wait for its peer before it saves.
    number = operator.declare("w1", orderly=True)
    operator.wait_for("running", "w1", number=number)
    assert leaving.wait() == 143
    saved = events.wait(2, what="saved")
    assert {e["worker"] for e in saved} == {"w0", "w1"}
    events.wait(1, what="step", world=1)
    assert not any(h.state == "failed" for h in operator.heard)

    operator.go_away()  # and with nobody to ask
    before = time.monotonic()
    staying.signal(signal.SIGTERM)
    assert staying.wait() == 143
    assert 1.5 < time.monotonic() - before < 15
    assert len(events.all(what="saved")) == 3


def test_sigterm_before_there_is_a_round(operator: ScriptedOperator, agents: Agents) -> None:
    # Longer than this waits.
    waiting = agents("w0", SCRIPTS / "train.py", ELASTIC_PYTORCH_GRACE_SECONDS=600)
    importing = agents("w1", SCRIPTS / "train.py", command=NEW_AGENT)
    operator.wait(lambda: handles_sigterm(importing.process.pid))
    importing.signal()
    assert importing.wait() == 143
    operator.wait_for("ready", "w0")
    waiting.signal()
    assert waiting.wait() == 143
    assert operator.states("w0") == ["ready", "leaving"]


def test_what_cannot_run_says_why(operator: ScriptedOperator, agents: Agents) -> None:
    refused = agents("w0", "--rdzv-backend=c10d", "train.py")
    assert refused.wait() == 2
    message = refused.termination_log.read_text()
    assert "--rdzv-backend is not for the command line" in message
    assert message in refused.text()
    assert operator.heard == []


def handles_sigterm(pid: int) -> bool:
    caught = next(
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigCgt:")
    )
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
