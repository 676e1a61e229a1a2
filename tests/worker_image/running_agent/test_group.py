import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.worker_image.agents import SCRIPTS, Agents, Events, has_ended, started_agents
from tests.worker_image.scripted_operator import ScriptedOperator

pytestmark = pytest.mark.process

WORKERS = ("w0", "w1", "w2")


class Group:
    def __init__(self, operator: ScriptedOperator, start: Agents, directory: Path) -> None:
        self.operator = operator
        self.events = Events(directory / "events")
        self.fail_once = directory / "failed"
        self.fail_once.touch()
        arguments = (SCRIPTS / "train.py", "--fail-once", self.fail_once)
        # as Debian's torch, which has no libuv
        self.agents = {w: start(w, *arguments, USE_LIBUV=0) for w in WORKERS}
        self.operator.wait_for("ready", *WORKERS)

    def declare(self, *workers: str) -> tuple[int, list[dict[str, Any]]]:
        now = time.time()
        number = self.operator.declare(*workers)
        self.operator.wait_for("running", *workers, number=number)

        def stepped() -> list[dict[str, Any]]:
            found = [
                e for e in self.events.all(what="step", step=2, world=len(workers)) if e["at"] > now
            ]
            return found if len(found) == len(workers) else []

        return number, self.operator.wait(stepped)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    operator, directory = ScriptedOperator(), tmp_path_factory.mktemp("group")
    with started_agents(operator.url, directory) as start:
        yield Group(operator, start, directory)
    operator.go_away()


def test_the_group_grows_and_shrinks(group: Group) -> None:
    _, two = group.declare("w0", "w1")
    assert {(e["worker"], e["RANK"], e["WORLD_SIZE"]) for e in two} == {("w0", 0, 2), ("w1", 1, 2)}
    _, three = group.declare("w1", "w2", "w0")
    assert {(e["worker"], e["RANK"], e["WORLD_SIZE"]) for e in three} == {
        ("w1", 0, 3),
        ("w2", 1, 3),
        ("w0", 2, 3),
    }
    number, one = group.declare("w2")
    assert {(e["worker"], e["RANK"], e["WORLD_SIZE"]) for e in one} == {("w2", 0, 1)}
    group.operator.wait_for("ready", "w0", "w1")
    heard = group.operator.last("w2")
    assert (heard.round, heard.rank, heard.failure, heard.restarts) == (number, 0, None, 1)
    assert (heard.worldSize, heard.localWorldSize) == (1, 1)
    assert all(e["TORCHELASTIC_RESTART_COUNT"] == 0 for e in group.events.all(what="start"))


def test_an_empty_round_stops_everybody(group: Group) -> None:
    group.declare("w0", "w1")
    group.operator.declare()
    group.operator.wait_for("ready", *WORKERS)
    steps = len(group.events.all(what="step"))
    time.sleep(0.3)
    assert len(group.events.all(what="step")) == steps


def test_only_the_newest_round_counts(group: Group) -> None:
    group.operator.declare("w0", "w1")
    group.operator.declare("w0", "w2")
    number, steps = group.declare("w1", "w2")
    assert {e["worker"] for e in steps} == {"w1", "w2"}
    assert group.operator.states("w0")[-1] == "ready"
    assert number == group.operator.round["round"]


def test_a_killed_worker_is_reported_and_started_again(group: Group) -> None:
    number, steps = group.declare(*WORKERS)
    victim = next(e for e in steps if e["worker"] == "w1")
    os.kill(victim["pid"], signal.SIGKILL)
    group.operator.wait_for("failed", *WORKERS, number=number)
    failure = group.operator.last("w1").failure
    assert (failure["rank"], failure["pid"]) == (1, victim["pid"])
    assert (failure["exitCode"], failure["signal"]) == (-9, "SIGKILL")
    for peer in ("w0", "w2"):
        told = group.operator.last(peer).failure
        assert told["exception"] == "RuntimeError"
        assert "Traceback" in told["traceback"]
    _, steps = group.declare(*WORKERS)
    assert len({e["pid"] for e in steps} | {victim["pid"]}) == 4


def test_an_exception_is_reported_with_its_traceback(group: Group) -> None:
    group.operator.declare()
    group.operator.wait_for("ready", *WORKERS)
    group.fail_once.unlink()
    number = group.operator.declare("w1", "w0")
    group.operator.wait_for("failed", "w0", number=number)
    failure = group.operator.last("w0").failure
    assert (failure["exception"], failure["exitCode"]) == ("ValueError", 1)
    assert failure["message"] == "ValueError: boom at step 3"
    assert failure["traceback"].splitlines()[-1] == "ValueError: boom at step 3"
    assert failure["ageSeconds"] < 30
    group.declare("w1", "w0")


def test_a_failure_that_a_newer_round_explains_is_none(group: Group) -> None:
    group.declare("w0", "w1")
    before = len([h for h in group.operator.heard if h.state == "failed"])
    group.declare("w0", "w2")  # w1 stops at once, which fails w0 if it is slower
    group.declare("w2", "w1")
    assert len([h for h in group.operator.heard if h.state == "failed"]) == before


def test_progress_is_told(group: Group) -> None:
    group.declare("w0", "w1")

    def told() -> Any:
        progress = group.operator.last("w1").progress
        return progress and progress["checkpointStep"] and progress

    progress = group.operator.wait(told)
    assert progress["step"] >= progress["checkpointStep"] >= 10
    assert progress["step"] >= progress["firstStep"] >= 1
    assert progress["total"] == 10**6
    assert 0 < progress["loss"] <= 1
    assert progress["startedAgeSeconds"] >= progress["formedAgeSeconds"] > 0
    number, _ = group.declare("w0", "w1")
    first = next(h for h in group.operator.heard if h.worker == "w1" and h.round == number)
    assert first.progress["firstStep"] is None, "the steps of the last round are none of this one's"
    assert first.progress["step"] is None


def test_a_nudge_is_answered_at_once(group: Group) -> None:
    group.operator.heartbeat_seconds = 30.0
    time.sleep(0.7)  # for the last of the short intervals to pass
    before = len(group.operator.heard)
    group.operator.ask_all()
    group.operator.wait(
        lambda: {h.worker for h in group.operator.heard[before:]} == set(WORKERS), seconds=10
    )
    group.operator.heartbeat_seconds = 0.3
    group.operator.ask_all()


def test_training_goes_on_without_the_operator(group: Group) -> None:
    group.declare("w0", "w1")
    group.operator.go_away()
    steps = len(group.events.all(what="step"))
    time.sleep(3)  # several tries of each connection
    group.operator.wait(lambda: len(group.events.all(what="step")) > steps + 20)
    heard = len(group.operator.heard)
    group.operator.come_back()
    group.operator.wait(lambda: {h.worker for h in group.operator.heard[heard:]} == set(WORKERS))
    assert {h.state for h in group.operator.heard[heard:] if h.worker != "w2"} == {"running"}
    group.declare("w0", "w1", "w2")


BAD_ANSWERS: list[tuple[int, dict[str, str], bytes]] = [
    (200, {}, b"<html>welcome</html>"),
    (200, {}, b"[]"),
    (200, {}, b'{"heartbeatSeconds": "many", "leaveSeconds": -1}'),
    (500, {}, b""),
    (401, {}, b'{"error": "no token"}'),
    (503, {"Retry-After": "0.3"}, b'{"error": "just started"}'),
    (503, {"Retry-After": "for ever"}, b"\xff\xfe"),
]


def test_bad_answers_change_nothing(group: Group) -> None:
    number, _ = group.declare(*WORKERS)
    steps = len(group.events.all(what="step"))
    for answer in BAD_ANSWERS:
        group.operator.answer_with = answer
        group.operator.ask_all()
        requests = group.operator.requests
        group.operator.wait(lambda requests=requests: group.operator.requests > requests + 6)
        group.operator.answer_with = None
        heard = len(group.operator.heard)
        group.operator.wait(
            lambda heard=heard: {h.worker for h in group.operator.heard[heard:]} == set(WORKERS)
        )
        assert {(h.state, h.round) for h in group.operator.heard[heard:]} == {
            ("running", number)
        }, answer
        assert len(group.events.all(what="step")) > steps
        assert all(agent.process.poll() is None for agent in group.agents.values())


def test_a_lost_agent_takes_its_workers_along(group: Group) -> None:
    _, steps = group.declare(*WORKERS)
    lost = next(e for e in steps if e["worker"] == "w0")
    group.agents["w0"].kill()
    group.operator.wait(lambda: has_ended(lost["pid"]))
    group.operator.wait_for("failed", "w1", "w2")
    _, steps = group.declare("w1", "w2")
    assert {(e["worker"], e["RANK"]) for e in steps} == {("w1", 0), ("w2", 1)}


def test_agents_begin_ready_and_never_go_back_to_an_earlier_round(group: Group) -> None:
    """A heartbeat tells the state of when it is sent, so a fast machine skips some."""
    for worker in WORKERS:
        states = group.operator.states(worker)
        rounds = [h.round for h in group.operator.heard if h.worker == worker]
        assert states[0] == "ready"
        assert {"ready", "running"} <= set(states) <= {"ready", "running", "stopping", "failed"}
        assert all(before <= after for before, after in pairwise(rounds)), rounds
    ports = {h.port for h in group.operator.heard if h.worker == "w1"}
    assert all(29500 <= port < 29700 for port in ports)
