"""Whatever is known of a job, each wait has a row and an end, and no sign shortens it."""

import math
from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.api.times import earliest
from elastic_pytorch_operator.model.observed import AgentState, NodeView, Observed, Progress
from elastic_pytorch_operator.planning.workers.liveness import Liveness, assess_workers
from elastic_pytorch_operator.planning.workers.silence import (
    ARRIVALS,
    CROWD,
    DEAF,
    DISCONNECTED,
    LATE,
    NEW_LEADER,
    PEER_FAILED,
    PREPARES,
    RECONNECT_SECONDS,
    SILENCE_SECONDS,
    TABLE,
    Silence,
    Silences,
    Wait,
    takeover_grace_until,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.builders import NOW, a_pod, a_round, an_agent, observed

AGO = st.one_of(st.floats(0, 4), st.floats(0, 40), st.floats(0, 400))


@st.composite
def any_job(draw: st.DrawFn) -> Observed:
    """What may be known of a job of up to four workers whose containers run."""
    listening = draw(AGO)
    states = draw(
        st.sampled_from([["running"], ["running", "failed"], [str(state) for state in AgentState]])
    )
    nodes = {
        f"node-{n}": NodeView(f"node-{n}", ready=draw(st.sampled_from([True, True, False])))
        for n in range(3)
    }
    pods = [
        a_pod(index, node=f"node-{draw(st.integers(0, 2))}")
        for index in range(draw(st.integers(1, 4)))
    ]
    agents = []
    for pod in draw(st.lists(st.sampled_from(pods), unique_by=lambda pod: pod.name)):
        heard_at = NOW - draw(st.floats(0, min(listening, 45)))
        steps = draw(st.booleans())
        agents.append(
            an_agent(
                pod.name,
                draw(st.sampled_from(states)),
                draw(st.integers(0, 1)),
                heard_at=heard_at,
                state_since=heard_at - draw(st.floats(0, 3)),
                disconnected_since=draw(st.none() | st.floats(heard_at, NOW)),
                progress=Progress(step=5 if steps else None),
                progressed_at=heard_at - draw(st.floats(0, 15)) if steps else 0.0,
            )
        )
    members = draw(st.none() | st.lists(st.integers(0, len(pods) - 1), unique=True))
    return observed(
        pods,
        agents,
        nodes=nodes,
        round=None
        if members is None
        else a_round(*members, size=len(members) + draw(st.integers(0, 1))),
        listening_since=NOW - listening,
        arrived_at=NOW - draw(AGO),
        lets_in_since=NOW - draw(AGO),
        on_time_since=NOW - draw(AGO),
        last_heard_at=max([agent.heard_at for agent in agents] + [NOW - draw(AGO)]),
        heard_again_at=draw(st.just(-math.inf) | st.floats(NOW - 40, NOW)),
        heartbeat_seconds=draw(st.sampled_from([1.0, 2.0])),
        heard_before=frozenset(draw(st.lists(st.sampled_from([pod.name for pod in pods])))),
        lost_leader_node=draw(st.sampled_from(["", "node-1"])),
    )


def silences(seen: Observed) -> dict[str, Silence]:
    """Of all workers that this leader, or one before it, has heard."""
    found = Silences(seen)
    before = {name: found.unheard(name) for name in seen.heard_before - seen.agents.keys()}
    return before | {name: found.heard(agent) for name, agent in seen.agents.items()}


def counted_from(seen: Observed, worker: str, wait: Wait) -> float:
    """When the seconds of a row begin."""
    if wait.since == NEW_LEADER:
        return seen.listening_since
    if wait is DEAF:
        return seen.now
    agent = seen.agents[worker]
    group = [seen.agents[name] for name in seen.ranks if name in seen.agents]
    if wait is DISCONNECTED:
        return agent.disconnected_since or 0.0
    if wait is PEER_FAILED:
        return min(
            each.state_since
            for each in group
            if each.state is AgentState.FAILED and each.round == 1
        )
    stepped_at = (
        max((each.progressed_at for each in group), default=0.0)
        if worker in seen.ranks and wait is not PREPARES
        else 0.0
    )
    return max(agent.heard_at, stepped_at)


@given(any_job())
def test_each_worker_has_one_row_and_a_time_within_its_bounds(seen: Observed) -> None:
    for worker, (wait, until) in silences(seen).items():
        assert sum(wait is row for row in TABLE) == 1
        seconds = until - counted_from(seen, worker, wait)
        factor = seen.heartbeat_seconds if wait.per_heartbeat else 1.0
        late = (
            max(ARRIVALS.lost_seconds, CROWD.lost_seconds)
            if wait.since == NEW_LEADER
            else LATE.lost_seconds
        )
        reconnected_at = seen.heard_again_at + RECONNECT_SECONDS
        late += max(0.0, reconnected_at - counted_from(seen, worker, wait))
        assert (
            wait.at_least_seconds * factor - 1e-6
            <= seconds
            <= wait.at_most_seconds * factor + late + 1e-6
        ), wait


@given(any_job(), st.data())
def test_sign_of_life_never_shortens_a_wait(seen: Observed, data: st.DataObject) -> None:
    """Later steps of those heard, later arrivals, and an operator that heard nothing."""
    moments = ["arrived_at", "lets_in_since", "on_time_since", "heard_again_at", "progressed_at"]
    moment = data.draw(st.sampled_from(moments))
    if moment == "progressed_at":
        stepping = {
            n: replace(a, progressed_at=a.heard_at)
            for n, a in seen.agents.items()
            if a.progress.step is not None
        }
        later = replace(seen, agents={**seen.agents, **stepping})
    else:
        sign: dict[str, Any] = {
            moment: data.draw(st.floats(max(NOW - 100, getattr(seen, moment)), NOW))
        }
        later = replace(seen, **sign)
    before, after = silences(seen), silences(later)
    for worker in before:
        assert after[worker].until >= before[worker].until, (worker, moment)
        assert (
            moment != "on_time_since"
            or after[worker].until <= before[worker].until + LATE.lost_seconds + 1e-6
        )
    assert (takeover_grace_until(later) or 0.0) >= (takeover_grace_until(seen) or 0.0)


@given(any_job())
def test_worker_that_is_heard_now_is_not_lost(seen: Observed) -> None:
    agents = {
        name: replace(agent, heard_at=NOW, disconnected_since=None)
        for name, agent in seen.agents.items()
    }
    candidates = assess_workers(replace(seen, agents=agents, last_heard_at=NOW))
    lost = {found.worker for found in candidates if found.liveness is Liveness.GONE}
    assert lost.isdisjoint(
        name for name, agent in agents.items() if agent.state is not AgentState.STOPPING
    )


@given(any_job(), st.floats(0.0, 0.99))
def test_worker_whose_silence_is_put_off_is_not_lost_before_a_heartbeat_is_late(
    seen: Observed, share: float
) -> None:
    for found in assess_workers(seen):
        if found.silent_at is None:
            continue
        late_at = seen.agents[found.worker].heard_at + SILENCE_SECONDS * seen.heartbeat_seconds
        assert NOW < late_at <= found.silent_at
        moment = NOW + share * (min(late_at, found.recheck_at or math.inf) - NOW)
        later = assess_workers(replace(seen, now=moment, last_heard_at=moment))
        assert {then.worker: then.liveness for then in later}[found.worker] == found.liveness


@given(any_job())
def test_nothing_waits_without_an_end(seen: Observed) -> None:
    """While only time passes and others are heard, each plan names the next moment."""
    if (until := takeover_grace_until(seen)) is not None:
        seen = replace(seen, now=until, last_heard_at=until)
        assert takeover_grace_until(seen) is None
    waits = seen.agents.keys() | seen.heard_before
    for _ in range(5 * len(seen.pods)):
        left = [
            found
            for found in assess_workers(seen)
            if found.worker in waits and found.liveness in ("ready", "starting")
        ]
        if not left:
            break
        moments = [earliest(found.recheck_at, found.silent_at) for found in left]
        moment = min(at or 0.0 for at in moments)
        assert moment > seen.now, "the plan that is made then decides something"
        seen = replace(seen, now=moment, last_heard_at=moment)
    assert not left
    assert (
        seen.now - NOW
        <= max(row.at_most_seconds for row in TABLE if math.isfinite(row.at_most_seconds))
        + ARRIVALS.lost_seconds
    )
