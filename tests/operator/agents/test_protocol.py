"""Agent and operator send and read all that the protocol declares."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
from elastic_pytorch.failures.failure import Failure
from elastic_pytorch.operator_link.client import NotedPlaces, OperatorClient
from elastic_pytorch.operator_link.http_connection import OperatorConnection
from elastic_pytorch.operator_link.rounds import RoundError, parse_round
from elastic_pytorch.progress.receiver import Progress
from elastic_pytorch.progress.work_windows import Work
from elastic_pytorch_operator.agents.heartbeat import MalformedHeartbeat, parse_heartbeat
from elastic_pytorch_operator.agents.round_answer import RoundAnswer
from elastic_pytorch_operator.model.observed import AgentState
from elastic_pytorch_operator.model.round import Round
from hypothesis import given
from hypothesis import strategies as st

from tests.drawn_from_schema import beyond, drawn_from, with_value
from tests.faults import assert_none
from tests.operator.agents.served import BEAT, Served
from tests.operator.builders import a_round
from tests.paths import ROOT

MESSAGES: dict[str, Any] = json.loads((ROOT / "docs" / "internals" / "protocol.json").read_text())


def admitted(kind: str, message: Any) -> None:
    jsonschema.validate(message, MESSAGES[kind])


def a_client(progress: Progress) -> OperatorClient:
    client = OperatorClient(
        OperatorConnection("localhost", 1, ""),
        local_world_size=8,
        port=lambda: 29501,
        progress=lambda: progress.to_json(3.0),
    )
    client.keeps_processes = lambda: True
    return client


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


PROGRESS = Progress(
    step=5,
    first_step=1,
    total=9,
    loss=0.5,
    checkpoint_step=4,
    checkpoints=2,
    started_at=1.0,
    formed_at=2.0,
    metrics=(("accuracy", 0.5),),
    work=Work(1, (0.1, None), 0.2),
    saving_since=2.5,
    failed_saves=3,
    save_error="No space left on device",
    checkpoint_seconds=1.5,
)


@pytest.mark.parametrize("progress", [Progress(), PROGRESS])
def test_agent_sends_heartbeats_as_they_are_declared(progress: Progress) -> None:
    client = a_client(progress)
    first = as_json(client.heartbeat())
    failure = Failure(0, 1, 57, -9, 0.0, "ValueError", "boom", "traceback")
    client.report(state="failed", round=7, failure=failure, gives_up=True)
    places = [{"kind": "lock", "operation": "", "frame": "train.py:1"}]
    client.report(places=NotedPlaces(0.0, places))
    failed = as_json(client.heartbeat())
    for beat in (first, failed):
        admitted("heartbeat", beat)
        parse_heartbeat("w0", beat, 0.0)
    declared = MESSAGES["heartbeat"]["properties"]
    assert failed.keys() == declared.keys()
    assert failed["failure"].keys() == declared["failure"]["properties"].keys()
    assert (failed["progress"] or {}).keys() <= declared["progress"]["properties"].keys()


def test_states_are_those_that_the_operator_knows() -> None:
    assert MESSAGES["heartbeat"]["properties"]["state"]["enum"] == [*AgentState]


@given(drawn_from(MESSAGES["heartbeat"]), st.text())
def test_operator_reads_every_heartbeat_that_is_declared(beat: Any, name: str) -> None:
    parse_heartbeat("w0", {f"{name} of a newer agent": name, **beat}, 0.0)


def of_heartbeats(path: str, value: object) -> Iterator[str]:
    beat = {
        "incarnation": "i",
        "state": "running",
        "round": 1,
        "places": {"ageSeconds": 0, "byLocalRank": []},
    }
    try:
        parse_heartbeat("w0", with_value(beat, path, value), 0.0)
    except MalformedHeartbeat as refused:
        if path.rpartition(".")[2] in str(refused):
            return
    yield f"{path} may be {value}"


def test_operator_names_what_is_beyond_a_bound_of_a_heartbeat() -> None:
    found = [*beyond(MESSAGES["heartbeat"])]
    assert ("failure.exitCode", 256) in found
    assert_none(fault for path, value in found for fault in of_heartbeats(path, value))


@pytest.mark.parametrize("declared", [None, a_round(0, 1), a_round(number=2)])
def test_operator_sends_rounds_as_they_are_declared(declared: Round | None) -> None:
    answer = RoundAnswer(declared)
    for worker in ("w1", "another"):
        told = json.loads(answer.describe(worker, 0, {"nudge": 0, "dump": 0, "verdict": None}))
        admitted("round", told)
        parse_round(told)


async def test_operator_answers_heartbeats_as_it_is_declared(served: Served) -> None:
    _, answer = await served.say(BEAT)
    admitted("answer", answer)


@st.composite
def rounds(draw: st.DrawFn) -> Any:
    """Rounds that are declared, whose numbers agree with each other."""
    told = draw(drawn_from(MESSAGES["round"]))
    told |= {name: min(told[name], told["round"]) for name in ("orderlySince", "keepsAllSince")}
    told["size"] = told["size"] if told["store"] else 0
    rank = told["rank"]
    return {
        **told,
        "rank": None if rank is None or not told["size"] else min(rank, told["size"] - 1),
    }


@given(rounds(), drawn_from(MESSAGES["answer"]), st.text())
def test_agent_reads_all_that_is_declared(told: Any, answer: Any, name: str) -> None:
    parse_round({f"{name} of a newer operator": name, **told})
    client = a_client(Progress())
    client.take_answer(answer, 7)
    taken = (client.heartbeat_seconds, client.leave_seconds, client.peer_stopped(7))
    assert taken == (answer["heartbeatSeconds"], answer["leaveSeconds"], answer["peerStopped"])


def of_rounds(path: str, value: object) -> Iterator[str]:
    told = {"round": 8, "size": 2, "rank": 1, "orderlySince": 7, "keepsAllSince": 6}
    try:
        parse_round(with_value({**told, "store": {"address": "a", "port": 1}}, path, value))
    except RoundError as refused:
        if path in str(refused):
            return
    yield f"{path} may be {value}"


def of_answers(path: str, value: object) -> Iterator[str]:
    try:
        a_client(Progress()).take_answer({path: value}, 7)
    except RoundError as refused:
        if path in str(refused):
            return
    yield f"{path} may be {value}"


@pytest.mark.parametrize(("kind", "read"), [("round", of_rounds), ("answer", of_answers)])
def test_agent_names_what_is_beyond_a_bound_or_of_another_type(
    kind: str, read: Callable[[str, object], Iterator[str]]
) -> None:
    wrong = [*beyond(MESSAGES[kind]), *((name, []) for name in MESSAGES[kind]["properties"])]
    assert_none(fault for path, value in wrong for fault in read(path, value))
