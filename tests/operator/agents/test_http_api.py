import time

import pytest
from elastic_pytorch_operator.agents.heartbeat import parse_heartbeat
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.resources import PODS
from elastic_pytorch_operator.model.round import Member, Round

from tests.operator.agents.served import BEAT, POD, Served, streaming
from tests.operator.builders import KEY, a_job, a_manifest, a_worker_pod


async def test_heartbeat_is_put_down_to_the_tokens_pod(served: Served) -> None:
    code, answer = await served.say(BEAT)
    assert (code, answer) == (
        200,
        {"heartbeatSeconds": 1.0, "leaveSeconds": 2.0, "peerStopped": False},
    )
    assert served.registry.agents("uid-lm", {POD})[POD].state == "ready"
    assert served.work == [KEY]


async def test_checkpoint_that_an_agent_has_seen_is_work_at_once(served: Served) -> None:
    for count, work in ((None, 1), (0, 2), (0, 2), (1, 3), (1, 3), (None, 4)):
        await served.say({**BEAT, "progress": None if count is None else {"checkpoints": count}})
        assert len(served.work) == work


async def test_agents_are_told_how_long_they_may_take_to_leave(served: Served) -> None:
    policy = {"checkpointWaitSeconds": 5, "checkpointPath": "/checkpoints"}
    changed = a_manifest(resizePolicy=policy)
    changed["metadata"]["resourceVersion"] = "2"
    served.cache.apply(names.KIND, changed, 1.0)
    _, answer = await served.say(BEAT)
    assert answer["leaveSeconds"] == 7


@pytest.mark.parametrize("token", ["", "forged"])
async def test_nobody_speaks_without_a_valid_token(served: Served, token: str) -> None:
    code, answer = await served.say(BEAT, token)
    assert code == 401
    assert "token" in answer["error"]
    assert served.work == []


async def test_pod_that_is_no_worker_is_refused(served: Served) -> None:
    stranger = {
        "metadata": {"namespace": "default", "name": "stranger"},
        "spec": {"containers": []},
    }
    await served.cluster.create(PODS, stranger)
    code, _ = await served.say(BEAT, served.cluster.issue_token("default", "stranger"))
    assert code == 403


async def test_token_of_an_earlier_pod_of_the_name_is_refused(served: Served) -> None:
    served.cluster.finish_deletion("default", POD)
    await served.cluster.create(PODS, a_worker_pod(a_job(), 0))
    served.cache.replace_all(
        [a_manifest()], await served.cluster.list_all(PODS), [], time.monotonic()
    )
    code, _ = await served.say(BEAT)
    assert code == 403


async def test_known_pod_may_speak_while_the_api_server_is_away(served: Served) -> None:
    served.cluster.fail_next("review_token", 0)
    assert (await served.say(BEAT))[0] == 503
    assert (await served.say(BEAT))[0] == 200
    served.cluster.fail_next("review_token", 0)
    assert (await served.say(BEAT))[0] == 200


@pytest.mark.parametrize(("own", "since"), [(7, 7), (8, 9)])
async def test_round_that_never_formed_is_lost_to_those_only_that_have_taken_it_up(
    served: Served, own: int, since: int
) -> None:
    members = (Member(POD, "10.0.0.1"),)
    served.registry.declare(
        "uid-lm",
        Round(9, members, 29501, "WorkerFailed", "why", 0.0, orderly_since=7, unformed=(8,)),
    )
    async with streaming(served, {**BEAT, "round": own}) as stream:
        await stream.receive("heartbeat")
        assert (await stream.receive("round"))["orderlySince"] == since


OTHER = "lm-worker-1-q2mmz"
MEMBERS_WORDS: dict[
    str, tuple[list[tuple[str, int]], list[int]]
] = {  # what another member says, and the rounds that it has left then
    "it trains": ([("running", 7), ("running", 7)], []),
    "it stops its workers": ([("running", 7), ("stopping", 7)], []),
    "it has stopped them": ([("running", 7), ("stopping", 7), ("ready", 7)], [7]),
    "it is in the next round by now": ([("running", 7), ("running", 8)], [7]),
    "it never was in a round": ([("ready", 0), ("running", 8)], []),
    "its training is over": ([("running", 7), ("succeeded", 7)], []),
}


@pytest.mark.parametrize("case", MEMBERS_WORDS)
def test_rounds_that_a_member_has_left(case: str) -> None:
    registry = AgentRegistry()
    said, left = MEMBERS_WORDS[case]
    for state, number in said:
        registry.note_heartbeat(
            "uid-lm",
            parse_heartbeat(OTHER, {"incarnation": "a", "state": state, "round": number}, 0.0),
        )
    assert [number for number in range(10) if registry.peer_stopped("uid-lm", number)] == left


@pytest.mark.parametrize(
    ("state", "dropped", "left"),
    [("leaving", True, True), ("leaving", False, False), ("running", True, False)],
)
def test_agent_that_leaves_has_left_its_round_once_its_stream_drops(
    state: str, dropped: bool, left: bool
) -> None:
    registry = AgentRegistry()
    registry.note_heartbeat(
        "uid-lm", parse_heartbeat(OTHER, {"incarnation": "a", "state": state, "round": 7}, 0.0)
    )
    registry.open_stream("uid-lm", OTHER)
    registry.close_stream("uid-lm", OTHER, 1.0, dropped=dropped)
    assert registry.peer_stopped("uid-lm", 7) == left


async def test_agents_are_told_that_a_peer_has_stopped_its_workers(served: Served) -> None:
    _, answer = await served.say({**BEAT, "state": "stopping", "round": 7})
    assert not answer["peerStopped"]
    served.registry.note_heartbeat(
        "uid-lm",
        parse_heartbeat(OTHER, {"incarnation": "b", "state": "running", "round": 7}, 0.0),
    )
    served.registry.note_heartbeat(
        "uid-lm",
        parse_heartbeat(OTHER, {"incarnation": "b", "state": "ready", "round": 7}, 0.0),
    )
    _, answer = await served.say({**BEAT, "state": "stopping", "round": 7})
    assert answer["peerStopped"]
