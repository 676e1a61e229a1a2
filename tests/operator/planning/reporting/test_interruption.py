from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.actions import RecordEvent
from elastic_pytorch_operator.model.observed import AgentView, Failure, Observed
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.planning.reporting.goodput import Activity
from elastic_pytorch_operator.planning.reporting.interruption import (
    PHASES,
    Interruption,
    advance_interruption,
    begin_interruption,
    recall_interruption,
    set_up_seconds,
    split_interruption,
)

from tests.operator.builders import NOW, TIME, Progress, a_failure, a_round, an_agent, observed
from tests.operator.simulation import Simulation, running
from tests.situations import situations

BEFORE, AFTER = a_round(0, 1, 2, number=1), replace(a_round(0, 1, number=2), declared_at=NOW)


def begin(
    before: Round, declared: Round, seen: Observed | None = None, known: Interruption | None = None
) -> Interruption:
    begun = begin_interruption(declared, replace(seen or observed(), round=before), known)
    assert begun is not None
    return begun


def advance(
    begun: Interruption,
    round_: Round,
    agents: Sequence[AgentView],
    gone: Collection[str] = (),
) -> Interruption:
    advanced = advance_interruption(begun, observed(agents=agents, round=round_), gone)
    assert advanced is not None
    return advanced


def in_words(phases: Mapping[str, float]) -> str:
    return ", ".join(f"{phase} {round(seconds, 6):g}" for phase, seconds in phases.items())


def stepping(worker: str, step: int, first: int, **fields: Any) -> AgentView:
    return an_agent(worker, round_=2, progress=Progress(step=step, first_step=first), **fields)


def test_first_round_is_no_interruption() -> None:
    assert begin_interruption(BEFORE, observed(), None) is None
    assert begin_interruption(a_round(0, number=4), observed(round=a_round(number=3)), None) is None


def test_interruption_begins_with_the_first_sign_of_the_loss() -> None:
    agents = [
        an_agent("w0", "failed", state_since=NOW - 0.2, progress=Progress(step=95)),
        an_agent("w1", progress=Progress(step=96)),
        an_agent("w2", disconnected_since=NOW - 0.3),
    ]
    begun = begin(BEFORE, AFTER, observed(agents=agents))
    assert (begun.since, begun.step_before, begun.seconds) == (NOW - 0.3, 96, None)


def test_interruption_ends_with_the_first_step_and_counts_the_steps_done_again() -> None:
    begun = Interruption(2, "WorkerLost", NOW - 1.0, step_before=96)
    first = stepping("w0", 93, 91, progressed_at=NOW - 0.2)
    second = stepping("w1", 91, 91, progressed_at=NOW - 0.1)
    ended = advance(begun, AFTER, [first, second])
    assert ended.seconds == pytest.approx(0.8)
    assert ended.steps_lost == 6


def test_interruption_goes_on_while_members_have_not_taken_up_the_round() -> None:
    begun = Interruption(2, "WorkerLost", NOW - 1.0)
    agents = [an_agent("w0", round_=2), an_agent("w1", round_=1)]
    assert advance_interruption(begun, observed(agents=agents, round=AFTER)) is begun


def test_without_reports_a_interruption_ends_when_all_workers_run() -> None:
    begun = Interruption(2, "WorkerLost", NOW - 1.0)
    agents = [
        an_agent(f"w{n}", round_=2, state_since=NOW - since) for n, since in enumerate((0.5, 0.4))
    ]
    ended = advance(begun, AFTER, agents)
    assert ended.seconds == pytest.approx(0.6)
    assert ended.steps_lost is None


def test_second_round_before_the_end_is_the_same_interruption() -> None:
    begun = Interruption(2, "WorkerLost", NOW - 1.0, step_before=96)
    again = begin(AFTER, a_round(0, number=3), observed(), begun)
    assert again == Interruption(3, "WorkerLost", NOW - 1.0, step_before=96)


def ended_at(seconds_ago: float) -> dict[str, Failure]:
    return {"failure": a_failure(failed_at=NOW - seconds_ago)}


@situations(
    "reason, member, since",
    {
        "when the process ended": ("WorkerFailed", ended_at(0.4), NOW - 0.4),
        "not before the round": ("WorkerFailed", ended_at(1e9), NOW - 100),
        "its last word": ("WorkerLost", {"state": "running", "heard_at": NOW - 4.0}, NOW - 4.0),
        "no loss": ("ScaledDown", {"state": "running", "heard_at": NOW - 4.0}, NOW),
        "no silence": ("WorkerLost", {"state": "running", "heard_at": NOW - 1.0}, NOW),
        "steps": (
            "WorkerLost",
            {"state": "running", "heard_at": NOW - 9.0, "progressed_at": NOW - 3.0},
            NOW - 3.0,
        ),
    },
)
def test_when_the_group_was_disturbed(reason: str, member: dict[str, Any], since: float) -> None:
    lost = an_agent("w2", **{"state": "failed", "state_since": NOW - 0.1, **member})
    seen = observed(agents=[an_agent("w0"), an_agent("w1"), lost])
    begun = begin(BEFORE, replace(AFTER, reason=reason), seen)
    assert begun.since == pytest.approx(since)


def test_phases_of_a_loss() -> None:
    begun = begin(BEFORE, AFTER, observed(agents=[an_agent("w2", disconnected_since=NOW - 0.2)]))
    fields = {"started_at": NOW + 0.6, "formed_at": NOW + 1.6}
    agents = [
        an_agent("w0", round_=2, state_since=NOW + 0.5, **fields),
        an_agent("w1", round_=2, state_since=NOW + 0.3, **fields),
    ]
    stopped = advance(replace(begun, step_before=9), AFTER, agents)
    assert (stopped.stopped_at, stopped.seconds) == (NOW + 0.5, None)
    steps = {"progress": Progress(step=10, first_step=10), "progressed_at": NOW + 1.8}
    stepped = [replace(a, **steps) for a in agents]  # type: ignore[arg-type]
    ended = advance(stopped, AFTER, stepped)
    phases = "detection 0.2, stop 0.5, wait 0, start 0.1, init 1, firstStep 0.2"
    assert in_words(ended.phases) == phases
    assert sum(ended.phases.values()) == pytest.approx(ended.seconds)
    assert ended.as_status() == {
        "time": TIME,
        "round": 2,
        "replicas": 2,
        "cause": AFTER.reason,
        "seconds": "2.00",
        "phaseSeconds": {phase: f"{seconds:.2f}" for phase, seconds in ended.phases.items()},
        "stepsLost": 0,
    }


@pytest.mark.parametrize("last", ["leaving", "running"])
def test_job_below_its_minimum_waits(last: str) -> None:
    empty = replace(a_round(number=2), declared_at=NOW)
    whole = replace(a_round(0, 1, 2, number=3), declared_at=NOW + 40)
    interruption = begin(BEFORE, empty)
    others = [an_agent("w1", "ready", 1, state_since=NOW + 1), an_agent("w2", last)]
    gone = {"w2"} if last == "running" else set()
    stops = [an_agent("w0", "stopping"), *others]
    interruption = advance(interruption, empty, stops, gone)
    assert interruption.stopped_at is None
    stopped = an_agent("w0", "ready", 1, state_since=NOW + 3)
    interruption = advance(interruption, empty, [stopped, *others], gone)
    assert interruption.stopped_at == NOW + 3
    interruption = begin(empty, whole, observed(), interruption)
    running = [an_agent(w, round_=3, state_since=NOW + 41) for w in ("w0", "w1", "w2")]
    ended = advance(interruption, whole, running)
    assert in_words(ended.phases) == "detection 0, stop 3, wait 37, start 1"


@pytest.mark.parametrize("state", ["preparing", "ready"])
def test_members_that_set_themselves_up_again_have_stopped(state: str) -> None:
    empty = replace(a_round(number=2), declared_at=NOW)
    interruption = begin(BEFORE, empty)
    agents = [
        an_agent("w0", state, 0, state_since=NOW + 2),
        an_agent("w1", "ready", 1, state_since=NOW + 1),
    ]
    stopped = advance(interruption, empty, agents)
    assert stopped.stopped_at == NOW + 2


SET_UP = {"set_up_since": NOW + 10, "set_up_until": NOW + 39}
SOONER = {"set_up_since": NOW + 5, "set_up_until": NOW + 30}
BEFOREHAND = {"set_up_since": NOW - 50, "set_up_until": NOW - 40}


@situations(
    "emptied, set_ups, waits",
    {
        "the job waited for it": (True, [BEFOREHAND, BEFOREHAND, SET_UP], "wait 9, prepare 30"),
        "it waited for two": (True, [BEFOREHAND, SOONER, SET_UP], "wait 9, prepare 30"),
        "all had been ready": (True, [BEFOREHAND, BEFOREHAND, BEFOREHAND], "wait 39"),
        "no set-up is known": (True, [{}, {}, {}], "wait 39"),
        "others were to train": (False, [BEFOREHAND, BEFOREHAND, SET_UP], "wait 39"),
    },
)
def test_wait_for_a_set_up_is_a_phase(
    emptied: bool, set_ups: list[dict[str, float]], waits: str
) -> None:
    first = a_round(*([] if emptied else [0, 1]), number=2)
    interruption = begin(BEFORE, replace(first, declared_at=NOW))
    interruption = replace(interruption, stopped_at=NOW + 1)
    whole = replace(a_round(0, 1, 2, number=3), declared_at=NOW + 40)
    interruption = begin(first, whole, observed(), interruption)
    running = [
        an_agent(f"w{n}", round_=3, state_since=NOW + 41, **set_up)
        for n, set_up in enumerate(set_ups)
    ]
    ended = advance(interruption, whole, running)
    assert in_words(ended.phases) == f"detection 0, stop 1, {waits}, start 1"


@situations(
    "before, seconds",
    {
        "a first start": (None, 29.0),
        "nothing trains": (replace(a_round(number=2), declared_at=NOW), 29.0),
        "others train": (a_round(0, 1, number=2), None),
    },
)
def test_round_that_begins_a_training_tells_of_the_last_set_up(
    before: Round | None, seconds: float | None
) -> None:
    agents = [
        an_agent("w0", "ready", 0, **SOONER),
        an_agent("w1", "ready", 0, **SET_UP),
        an_agent("w2", "ready", 0),
    ]
    seen = replace(observed(agents=agents, round=before), now=NOW + 40)
    assert set_up_seconds(a_round(0, 1, 2, number=3), seen) == seconds
    assert set_up_seconds(None, seen) is None
    assert set_up_seconds(a_round(2, number=3), seen) is None


def test_next_leader_goes_on_with_an_interruption() -> None:
    seen = observed(agents=[an_agent("w1", progress=Progress(step=96))])
    begun = begin(BEFORE, AFTER, seen)
    state = begun.as_state()
    assert state == {"round": 2, "cause": AFTER.reason, "began": TIME, "step": 96}
    recalled = recall_interruption(state, NOW + 7, "2026-01-01T00:00:09Z")
    assert recalled is not None
    assert (recalled.round, recalled.reason) == (2, AFTER.reason)
    assert (recalled.step_before, recalled.seconds) == (96, None)


@pytest.mark.parametrize("name", ["round", "cause", "began"])
@pytest.mark.parametrize("garbage", [None, True, 1.5, "<b>", [], {"a": 1}])
def test_interruption_that_cannot_be_read_counts_as_none(name: str, garbage: Any) -> None:
    state = {"round": 2, "cause": "WorkerLost", "began": TIME, "step": garbage, name: garbage}
    found = recall_interruption(state, NOW, TIME)
    assert found is None or (name, garbage, found.step_before) == ("began", "<b>", None)


def lose_all(world: Simulation) -> None:
    for name in list(world.pods):
        world.pods.pop(name)
        world.agents.pop(name, None)


def begin_from(world: Simulation, step: int) -> None:
    world.settle(30)
    progress = Progress(step=step, first_step=step)
    for name in world.members:
        agent = world.agents[name]
        world.agents[name] = replace(agent, progress=progress, progressed_at=world.now)
    world.settle(5)


@pytest.mark.simulation
@situations("noticed", {"the leader before has seen the loss": True, "no leader has": False})
def test_steps_done_again_count_although_the_leader_goes_with_the_group(noticed: bool) -> None:
    world = running()
    world.make_progress(100)
    world.settle(30)
    assert world.status["progress"]["step"] == 100
    lose_all(world)
    if noticed:
        world.reconcile()
        assert world.status["operatorState"]["interruption"]["step"] == 100
    world.take_over({})
    begin_from(world, 41)
    assert [entry["stepsLost"] for entry in world.status["history"] if "seconds" in entry] == [60]
    assert "interruption" not in world.status.get("operatorState", {})


@pytest.mark.simulation
def test_group_that_trains_through_a_change_of_the_leader_has_no_interruption() -> None:
    world = running()
    world.make_progress(100)
    world.settle(30)
    world.take_over({})
    world.settle(30)
    assert not [entry for entry in world.status["history"] if "seconds" in entry]


@pytest.mark.simulation
@situations("suspended", {"another worker is lost": False, "the job is suspended": True})
def test_interruption_that_ends_as_the_group_changes_again_is_reported(suspended: bool) -> None:
    world, metrics = running(), Metrics()
    for name, agent in world.agents.items():
        world.agents[name] = replace(agent, steps_per_second=4.0)
    world.make_progress(100)
    world.settle(30)
    world.kill_pod(world.members[-1])
    while world.agents[world.members[0]].round < 2:
        world.settle(world.step_seconds)
    world.make_progress(101)
    if suspended:
        world.job = replace(world.job, suspend=True, wanted=0, generation=2)
    else:
        world.kill_pod(world.members[-1])
    before = world.memory
    plan = world.reconcile()
    metrics.decided("team", before, plan)
    assert plan.round is not None
    assert plan.round.number == 3
    told = [event.reason for event in plan.actions if isinstance(event, RecordEvent)]
    assert told.count("TrainingResumed") == 1
    assert [entry["round"] for entry in world.status["history"] if "seconds" in entry] == [2]
    assert world.memory.account is not None
    assert world.memory.account.spent[Activity.REPEATING].seconds > 0
    lost = 'elastic_pytorch_steps_lost_total{namespace="team"} 100.0'
    assert lost in metrics.render(GaugeValues()).decode()


SINCE = 10.0
ENDS = {"detection": 10.1, "stop": 10.5, "wait": 10.5, "start": 10.8} | {
    "init": 12.0,
    "firstStep": 12.2,
}


@situations(
    "changes, expected",
    {
        "all is known": ({}, "detection 0.1, stop 0.4, wait 0, start 0.3, init 1.2, firstStep 0.2"),
        "a job below its minimum waits for a pod": (
            {"wait": 60.0, "start": 60.2, "init": 61.0, "firstStep": 62.0},
            "detection 0.1, stop 0.4, wait 49.5, start 0.2, init 0.8, firstStep 1",
        ),
        "a job below its minimum waits for a pod, and then for its set-up": (
            {"wait": 40.0, "prepare": 60.0, "start": 60.2, "init": 61.0, "firstStep": 62.0},
            "detection 0.1, stop 0.4, wait 29.5, prepare 20, start 0.2, init 0.8, firstStep 1",
        ),
        "a set-up has begun before the others had stopped": (
            {"wait": 10.2, "prepare": 30.0, "start": 30.2, "init": 31.0, "firstStep": 32.0},
            "detection 0.1, stop 0.4, wait 0, prepare 19.5, start 0.2, init 0.8, firstStep 1",
        ),
        "an agent that is the user's own torchrun": (
            {"start": None, "init": None},
            "detection 0.1, stop 0.4, wait 0, firstStep 1.7",
        ),
        "a script that starts cold": (
            {"init": None},
            "detection 0.1, stop 0.4, wait 0, start 0.3, firstStep 1.4",
        ),
        "a script that reports no steps": (
            {"start": 11.0, "init": None, "firstStep": None},
            "detection 0.1, stop 0.4, wait 0, start 0.5",
        ),
        "it is not known when they stopped": (
            {"stop": None},
            "detection 0.1, wait 0.4, start 0.3, init 1.2, firstStep 0.2",
        ),
        "no phase is negative": (
            {"detection": 10.0, "stop": 9.0, "wait": 9.0},
            "detection 0, stop 0, wait 0, start 0.8, init 1.2, firstStep 0.2",
        ),
        "a pod starts after the others have stepped": (
            {"start": 13.0, "init": 12.5},
            "detection 0.1, stop 0.4, wait 0, start 1.7, init 0, firstStep 0",
        ),
    },
)
def test_phases(changes: dict[str, float | None], expected: str) -> None:
    found = split_interruption(SINCE, ENDS | changes)
    assert in_words(found) == expected
    assert list(found) == [phase for phase in PHASES if phase in found]


@pytest.mark.parametrize("missing", [phase for phase in PHASES if phase != "firstStep"])
def test_together_they_are_the_interruption(missing: str) -> None:
    assert sum(split_interruption(SINCE, ENDS | {missing: None}).values()) == pytest.approx(2.2)
