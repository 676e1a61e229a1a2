from typing import Any

import pytest
from elastic_pytorch_operator.model.observed import AgentView, Nodes, NodeView, PodView
from elastic_pytorch_operator.planning.workers.liveness import (
    Candidate,
    Liveness,
    assess_workers,
    is_outage,
    settled_at,
)
from elastic_pytorch_operator.planning.workers.silence import CROWD, FIRST_REPORT, LATE

from tests.operator.builders import (
    NOW,
    a_candidate,
    a_dead_pod,
    a_failure,
    a_pending_pod,
    a_pod,
    a_round,
    an_agent,
    observed,
)
from tests.situations import situations

GROUP = a_round(0, 1, 2)
SILENT = {"heard_at": NOW - 3.5}


def liveness_of(
    pod: PodView | None,
    agent: AgentView | None,
    peers: list[AgentView] | None = None,
    **fields: Any,
) -> Liveness:
    others = peers if peers is not None else [an_agent("w1"), an_agent("w2")]
    pods = [*([pod] if pod else []), a_pod(1), a_pod(2)]
    seen = observed(pods, [*([agent] if agent else []), *others], **{"round": GROUP, **fields})
    return next(c.liveness for c in assess_workers(seen) if c.worker == "w0")


OTHERS = {f"node-{n}": NodeView(f"node-{n}") for n in (1, 2)}
NODE_LOST = {"nodes": {"node-0": NodeView("node-0", ready=False), **OTHERS}}
NODE_REMOVED = {"nodes": {"node-0": NodeView("node-0", ready=False, removed=True), **OTHERS}}
OUTAGE = {"nodes": {name: NodeView(name, ready=False) for name in ("node-0", "node-1", "node-2")}}
FAILED = {"state": "failed", "state_since": NOW - 0.5}
WELL = a_pod(0)


Case = tuple[PodView | None, AgentView | None, dict[str, Any]]


def case(agent: AgentView | None, pod: PodView | None = WELL, **fields: Any) -> Case:
    return pod, agent, fields


@situations(
    "given, expected",
    {
        "works": (case(an_agent("w0")), "ready"),
        "not in the cluster": (case(an_agent("w0"), None), "gone"),
        "not scheduled": (case(None, a_pending_pod(0)), "starting"),
        "agent not heard yet": (case(None), "starting"),
        "address not known yet": (case(an_agent("w0"), a_pod(0, address="")), "starting"),
        "container ended": (case(an_agent("w0"), a_dead_pod(0)), "gone"),
        "container ended, sidecar runs": (
            case(an_agent("w0"), a_pod(0, exit_code=1, sidecar_runs=True)),
            "gone",
        ),
        "evicted": (case(an_agent("w0"), a_pod(0, phase="Failed", exit_reason="Evicted")), "gone"),
        "being deleted": (case(an_agent("w0"), a_pod(0, deleting=True)), "leaving"),
        "told to stop": (case(an_agent("w0", "leaving")), "leaving"),
        "silent": (case(an_agent("w0", **SILENT)), "gone"),
        "silent for a moment": (case(an_agent("w0", heard_at=NOW - 2)), "ready"),
        "node not heard of yet": (case(an_agent("w0"), a_pod(0, node="elsewhere")), "ready"),
        "node not heard of yet, nor the agent": (
            case(None, a_pod(0, node="elsewhere")),
            "starting",
        ),
        "node removed but agent speaks": (case(an_agent("w0"), **NODE_REMOVED), "ready"),
        "node removed and silent": (case(an_agent("w0", heard_at=NOW - 2), **NODE_REMOVED), "gone"),
        "node removed before the agent spoke": (case(None, **NODE_REMOVED), "gone"),
        "node not ready and silent": (case(an_agent("w0", heard_at=NOW - 2), **NODE_LOST), "gone"),
        "node not ready but agent speaks": (case(an_agent("w0"), **NODE_LOST), "ready"),
        "node not ready before the agent spoke": (case(None, **NODE_LOST), "gone"),
        "no node ready and silent": (case(an_agent("w0", heard_at=NOW - 2), **OUTAGE), "ready"),
        "no node ready before the agent spoke": (case(None, **OUTAGE), "starting"),
        "sets itself up": (case(an_agent("w0", "preparing", 0)), "starting"),
        "sets itself up, not heard for a while": (
            case(an_agent("w0", "preparing", 0, heard_at=NOW - 59)),
            "starting",
        ),
        "sets itself up, silent": (
            case(an_agent("w0", "preparing", 0, heard_at=NOW - 61), last_heard_at=NOW),
            "gone",
        ),
        "sets itself up, its node is lost": (
            case(an_agent("w0", "preparing", 0, heard_at=NOW - 2), **NODE_LOST),
            "gone",
        ),
        "its group goes on without it": (
            case(an_agent("w0", "failed", 1), round=a_round(1, 2, number=2)),
            "starting",
        ),
        "has failed in its set-up": (case(an_agent("w0", "failed", 0)), "starting"),
        "stops its workers": (case(an_agent("w0", "stopping", state_since=NOW - 59)), "ready"),
        "has not stopped them in time": (
            case(an_agent("w0", "stopping", state_since=NOW - 61)),
            "gone",
        ),
        "has a longer time for that": (
            case(an_agent("w0", "stopping", state_since=NOW - 629), a_pod(0, grace_seconds=600)),
            "ready",
        ),
        "that has passed, too": (
            case(an_agent("w0", "stopping", state_since=NOW - 631), a_pod(0, grace_seconds=600)),
            "gone",
        ),
        "trains for long": (case(an_agent("w0", state_since=NOW - 9999)), "ready"),
        "connection closed, group fine": (
            case(an_agent("w0", disconnected_since=NOW - 1)),
            "ready",
        ),
    },
)
def test_standing(given: Case, expected: str) -> None:
    pod, agent, fields = given
    assert liveness_of(pod, agent, **fields) == expected


@situations(
    "agent, expected",
    {
        "has spoken since": (an_agent("w0"), "ready"),
        "has not spoken, still connected": (an_agent("w0", heard_at=NOW - 0.9), "ready"),
        "has not spoken, connection closed": (
            an_agent("w0", heard_at=NOW - 0.9, disconnected_since=NOW - 0.6),
            "gone",
        ),
        "has not spoken, connection just closed": (
            an_agent("w0", heard_at=NOW - 0.9, disconnected_since=NOW - 0.1),
            "ready",
        ),
    },
)
def test_standing_while_a_peer_has_failed(agent: AgentView, expected: str) -> None:
    peers = [an_agent("w1", **FAILED), an_agent("w2")]
    assert liveness_of(a_pod(0), agent, peers) == expected


def test_silence_after_a_peer_has_failed_is_short() -> None:
    peers = [an_agent("w1", state="failed", state_since=NOW - 1.3), an_agent("w2")]
    assert liveness_of(a_pod(0), an_agent("w0", heard_at=NOW - 1.4), peers) == "gone"


def test_a_group_that_steps_vouches_for_a_silent_member() -> None:
    stepping = [an_agent("w1", progressed_at=NOW - 0.5), an_agent("w2")]
    assert liveness_of(a_pod(0), an_agent("w0", heard_at=NOW - 20), stepping) == "ready"
    stopped = [an_agent("w1", progressed_at=NOW - 3.5), an_agent("w2")]
    assert liveness_of(a_pod(0), an_agent("w0", heard_at=NOW - 20), stopped) == "gone"


def test_nobody_is_lost_when_nobody_is_heard() -> None:
    silent = [an_agent("w1", heard_at=NOW - 90), an_agent("w2", heard_at=NOW - 90)]
    assert liveness_of(a_pod(0), an_agent("w0", heard_at=NOW - 90), silent) == "ready"
    assert liveness_of(a_pod(0), an_agent("w0", heard_at=NOW - 90), silent, **NODE_LOST) == "gone"


def test_order_of_last_heartbeats_loses_no_member_of_a_group_that_falls_silent() -> None:
    heard = (NOW - 3.05, NOW - 2.6, NOW - 2.2)
    agents = [an_agent(f"w{i}", heard_at=at, progressed_at=NOW - 5) for i, at in enumerate(heard)]
    seen = observed([a_pod(i) for i in range(3)], agents, round=GROUP, last_heard_at=NOW)
    assert {c.liveness for c in assess_workers(seen)} == {Liveness.READY}


def test_a_whole_group_is_lost_after_half_a_minute_if_other_jobs_are_heard() -> None:
    def whole(seconds: float) -> Liveness:
        agents = [an_agent(f"w{i}", heard_at=NOW - seconds) for i in range(3)]
        return liveness_of(a_pod(0), agents[0], agents[1:], last_heard_at=NOW)

    assert whole(9) == "ready"
    assert whole(31) == "gone"


def test_last_words_of_a_failure_are_kept_unless_they_only_echo_another() -> None:
    def failure_of(message: str) -> str | None:
        agent = an_agent("w0", "failed", failure=a_failure(message))
        [found] = assess_workers(observed([a_pod(0)], [agent], round=a_round(0)))
        assert found.failed
        return found.failure

    assert failure_of("Traceback:\n  File\nValueError: boom\n") == "ValueError: boom"
    assert failure_of("RuntimeError: gloo: Connection closed by peer") is None


@situations(
    "listening_for, fields, expected",
    {
        "may be about to speak": (14, {}, "starting"),
        "cannot reach the operator, as others can": (16, {}, "gone"),
        "others still arrive": (16, {"arrived_at": NOW - 10}, "starting"),
        "no agent can": (100, {"last_heard_at": NOW - 50}, "starting"),
        "has never spoken, and may be installing things first": (
            100,
            {"heard_before": frozenset()},
            "starting",
        ),
    },
)
def test_agent_that_a_new_operator_has_not_heard(
    listening_for: float, fields: dict[str, Any], expected: str
) -> None:
    known = {
        "heard_before": frozenset({"w0"}),
        "listening_since": NOW - listening_for,
        "last_heard_at": NOW,
    } | fields
    seen = observed([a_pod(0), a_pod(1)], [an_agent("w1", "ready")], **known)
    [found] = [candidate for candidate in assess_workers(seen) if candidate.worker == "w0"]
    assert found.liveness == expected
    assert (found.recheck_at is not None) == (
        expected == "starting" and bool(known["heard_before"])
    )


def test_rarer_heartbeats_are_waited_for_longer() -> None:
    quiet = an_agent("w0", **SILENT)
    assert liveness_of(a_pod(0), quiet) == "gone"
    assert liveness_of(a_pod(0), quiet, heartbeat_seconds=2.0) == "ready"
    assert (
        liveness_of(a_pod(0), an_agent("w0", heard_at=NOW - 6.5), heartbeat_seconds=2.0) == "gone"
    )


BROKEN = [
    an_agent("w1", "failed", state_since=NOW - 5),
    an_agent("w2", "failed", state_since=NOW - 5),
]


JUST_BROKEN = [an_agent(name, "failed", state_since=NOW - 1.1) for name in ("w1", "w2")]


@pytest.mark.parametrize(
    ("agent", "peers", "on_time_for", "expected"),
    [
        ({"heard_at": NOW - 4}, None, 60.0, "gone"),
        ({"heard_at": NOW - 4}, None, 3.5, "gone"),
        # What it has sent since then may not have been read yet.
        ({"heard_at": NOW - 4}, None, 2.5, "ready"),
        ({"heard_at": NOW - 4}, None, 0.0, "ready"),
        ({"heard_at": NOW - LATE.lost_seconds - 3.5}, None, 0.0, "gone"),
        ({"heard_at": NOW - 5.5}, BROKEN, 4.0, "gone"),
        ({"heard_at": NOW - 5.5}, BROKEN, 1.0, "ready"),
        # Only a new connection can be heard.
        ({"heard_at": NOW - 5.5, "disconnected_since": NOW - 1}, JUST_BROKEN, 4.0, "gone"),
        ({"heard_at": NOW - 5.5, "disconnected_since": NOW - 1}, JUST_BROKEN, 0.2, "ready"),
    ],
)
def test_agent_is_not_silent_while_the_event_loop_is_late(
    agent: dict[str, float], peers: list[AgentView] | None, on_time_for: float, expected: str
) -> None:
    silent = an_agent("w0", **agent)  # type: ignore[arg-type]
    assert liveness_of(a_pod(0), silent, peers, on_time_since=NOW - on_time_for) == expected


@pytest.mark.parametrize(
    ("listens_for", "lets_in_for", "expected"),
    [
        (16.0, 100.0, "gone"),
        (16.0, 16.0, "gone"),
        (16.0, 14.0, "starting"),  # agents waited to be let in
        (16.0, 0.0, "starting"),
        (CROWD.lost_seconds + 16.0, 0.0, "gone"),
    ],
)
def test_agent_that_waits_to_be_let_in_by_a_new_leader_is_not_lost(
    listens_for: float, lets_in_for: float, expected: str
) -> None:
    moments = {
        "listening_since": NOW - listens_for,
        "lets_in_since": NOW - lets_in_for,
        "last_heard_at": NOW,
    }
    stopped = [an_agent("w1", "ready")]
    assert (
        liveness_of(a_pod(0), None, stopped, heard_before=frozenset({"w0"}), **moments) == expected
    )


def ready(index: int, since: float) -> Candidate:
    return a_candidate(index, state_since=since)


def starting(*, runs: bool) -> Candidate:
    return Candidate("w9", 9, "", Liveness.STARTING, container_runs=runs)


@pytest.mark.parametrize(
    ("room", "others", "expected"),
    [
        (2, [], NOW),
        (0, [], NOW),
        (3, [], 92.0),
        (3, [starting(runs=False)], 92.0),
        (3, [starting(runs=True)], 80.0 + FIRST_REPORT.at_least_seconds),
    ],
)
def test_when_newcomers_need_not_wait(room: int, others: list[Candidate], expected: float) -> None:
    newcomers = [ready(0, 80.0), ready(1, 90.0)]
    assert settled_at(newcomers, [*newcomers, *others], room, 2.0, NOW) == expected


@pytest.mark.parametrize(
    ("ready", "not_ready", "outage"),
    [(0, 0, False), (3, 0, False), (2, 1, False), (1, 2, False), (0, 1, True), (0, 3, True),
     (2, 3, True), (3, 3, False), (90, 9, False)],
)  # fmt: skip
def test_most_nodes_not_ready_is_an_outage(ready: int, not_ready: int, outage: bool) -> None:
    nodes = Nodes(
        {f"node-{n}": NodeView(f"node-{n}", ready=n < ready) for n in range(ready + not_ready)}
    )
    assert is_outage(nodes) is outage
