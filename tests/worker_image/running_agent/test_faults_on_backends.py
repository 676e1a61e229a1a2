"""What faults and changes cost on gloo, and on a backend that behaves under them as NCCL does.

With each handler of SIGTERM that scripts have. One group of agents serves all cases. Its grace
period is ten minutes: what comes within the minute that a test waits has not been held up by
processes that cannot end.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker_image.agents import SCRIPTS, Agent, Events, descendants
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = [pytest.mark.process, pytest.mark.torch]

WORKERS = ("w0", "w1", "w2")
HANDLERS = pytest.mark.parametrize(
    "handler",
    ["flag", *(pytest.param(handler, marks=pytest.mark.long) for handler in ("none", "lightning"))],
)
# Lightning's later one may also hold up an orderly stop, as ranks come to its collective at
# different places of the step.
HANDLERS_IN_A_LOSS = pytest.mark.parametrize(
    "handler",
    [
        "lightning",
        *(
            pytest.param(handler, marks=pytest.mark.long)
            for handler in ("none", "flag", "lightning-2.6")
        ),
    ],
)

Steps = list[dict[str, Any]]


class Group:
    """Three agents, whose scripts do what a file says when they start."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.operator = ScriptedOperator()
        self.events = Events(directory / "events")
        self.mode: dict[str, Any] = {}
        self.agents: dict[str, Agent] = {}
        self._cases = 0
        self._in_a_case = False

    def begin(self, backend: str, handler: str, *workers: str, **environment: Any) -> Steps:
        """Has workers train on a backend and with a handler; returns a step of each."""
        if self._in_a_case:  # the one before has failed, and left them in any state
            self.end()
        self._in_a_case = True
        for worker in WORKERS:
            if worker not in self.agents or self.agents[worker].process.poll() is not None:
                self._start(worker)
        self.operator.declare()
        self.operator.wait_for("ready", *WORKERS)
        self._cases += 1
        self.mode = {
            "case": self._cases,
            "backend": backend,
            "handler": handler,
            "environment": environment,
        }
        (self.directory / "mode").write_text(json.dumps(self.mode))
        return self.go_on(*workers)

    def go_on(self, *workers: str, orderly: bool = False) -> Steps:
        """Declares a round and waits for its workers' third step."""
        number = self.operator.declare(*workers, orderly=orderly)
        now = time.time()

        def stepped() -> Steps:
            found = [
                e
                for e in self.events.all(what="step", step=3, world=len(workers), **self.mode)
                if e["at"] > now
            ]
            return found if {event["worker"] for event in found} == set(workers) else []

        steps: Steps = self.operator.wait(stepped)
        self.operator.wait_for("running", *workers, number=number)
        return steps

    def done(self) -> None:
        """The case has gone well."""
        self._in_a_case = False

    def end(self) -> None:
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
            print(f"--- {agent.worker}\n{agent.text()}")

    def _start(self, worker: str) -> None:
        settings: dict[str, Any] = {
            "MODE": self.directory / "mode",
            "USE_LIBUV": 0,
            "ELASTIC_PYTORCH_GRACE_SECONDS": 600,
        }
        self.agents[worker] = Agent(
            worker, self.operator.url, self.directory, SCRIPTS / "on_backend.py", **settings
        )


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    made = Group(tmp_path_factory.mktemp("group"))
    yield made
    made.end()
    made.operator.go_away()


def kill_process(group: Group, steps: Steps) -> tuple[str, ...]:
    os.kill(next(step["pid"] for step in steps if step["worker"] == "w2"), signal.SIGKILL)
    group.operator.wait_for("failed", "w2")
    return WORKERS


def kill_pod(group: Group, _steps: Steps) -> tuple[str, ...]:
    group.agents["w2"].kill()
    group.agents["w2"].wait()
    return WORKERS[:2]


def silence_pod(group: Group, _steps: Steps) -> tuple[str, ...]:
    """As of a node that is lost or cut off: none of its connections closes."""
    for pid in family(group.agents["w2"].process.pid):
        os.kill(pid, signal.SIGSTOP)
    return WORKERS[:2]


def family(pid: int) -> list[int]:
    return [pid, *descendants(pid)]


@HANDLERS_IN_A_LOSS
@pytest.mark.parametrize("lose", [kill_process, kill_pod, silence_pod])
def test_survivors_of_a_loss_go_on_at_once(
    group: Group, backend: str, handler: str, lose: Callable[[Group, Steps], tuple[str, ...]]
) -> None:
    steps = group.begin(backend, handler, *WORKERS)
    group.go_on(*lose(group, steps))
    if lose is silence_pod:  # and so does the one that was cut off, once it hears again
        for pid in family(group.agents["w2"].process.pid):
            os.kill(pid, signal.SIGCONT)
        group.go_on(*WORKERS)
    group.done()


@pytest.mark.parametrize("lose", [kill_process, pytest.param(kill_pod, marks=pytest.mark.long)])
def test_survivors_that_nccl_aborts_tell_why(
    group: Group, lose: Callable[[Group, Steps], tuple[str, ...]]
) -> None:
    steps = group.begin("nccl_like", "flag", *WORKERS, NCCL_LIKE_NOTICES="1")
    left = lose(group, steps)
    group.operator.wait_for("failed", "w0", "w1")
    for worker in ("w0", "w1"):
        heard = group.operator.last(worker)
        assert heard.failure["signal"] == "SIGABRT"
        assert "ncclRemoteError" in heard.failure["message"] + heard.failure["traceback"]
    group.go_on(*left)
    group.done()


@HANDLERS
def test_orderly_changes_do_not_wait_for_what_does_not_come(
    group: Group, backend: str, handler: str
) -> None:
    group.begin(backend, handler, "w0", "w1")
    group.go_on(*WORKERS, orderly=True)
    group.go_on("w0", "w1", orderly=True)
    group.go_on(*WORKERS, orderly=True)
    group.agents["w2"].signal()
    group.operator.wait_for("leaving", "w2")
    group.go_on("w0", "w1", orderly=True)
    assert group.agents["w2"].wait() == 143
    if handler == "flag":
        saved = group.events.all(what="saved", **group.mode)
        assert [
            len([event for event in saved if event["worker"] == worker]) for worker in WORKERS
        ] == [4, 4, 2]
    assert not [
        heard
        for heard in group.operator.heard
        if heard.state == "failed" and heard.round == group.operator.round["round"]
    ]
    group.done()


def test_ranks_that_leave_one_by_one_in_an_orderly_change_do_not_wait_for_each_other(
    group: Group, backend: str
) -> None:
    group.begin(backend, "alone", *WORKERS)
    group.go_on("w0", "w1", orderly=True)
    group.done()
