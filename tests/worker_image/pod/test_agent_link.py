from typing import Any

import pytest
from elastic_pytorch.pod.agent_link import AgentLink
from elastic_pytorch.pod.messages import PARKED
from elastic_pytorch.pod.planned_stop import PlannedStop, script_end


class Client:
    def __init__(self, *messages: dict[str, Any] | None, stays: bool) -> None:
        self.coming = list(messages)
        self.come: list[dict[str, Any]] = []
        self.stays = stays
        self.sent: list[dict[str, Any]] = []

    def messages(self) -> list[dict[str, Any]]:
        come, self.come = self.come, []
        return come

    def wait_message(self, timeout_seconds: float) -> dict[str, Any] | None:
        assert timeout_seconds > 0
        return self.coming.pop(0)

    def connected(self) -> bool:
        return self.stays or bool(self.coming)

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


GO = {"kind": "go", "environment": {"RANK": "1"}}


def test_waits_for_as_long_as_the_agent_is_there() -> None:
    assert AgentLink(Client(*[None] * 5000, GO, stays=True)).wait_for_go() == {"RANK": "1"}


def test_does_not_wait_for_an_agent_that_is_gone() -> None:
    with pytest.raises(ConnectionError, match="gone"):
        AgentLink(Client(None, None, stays=False)).wait_for_go()


def change(*, leaves: bool) -> dict[str, Any]:
    return {"kind": "change", "round": 2, "orderly": True, "leaves": leaves}


@pytest.mark.parametrize("leaves", [True, False])
def test_a_change_that_a_peer_has_heard_of_first_is_waited_for(leaves: bool) -> None:
    link = AgentLink(Client({"kind": "other"}, change(leaves=leaves), stays=True))
    assert link.leaves_group() is leaves


def test_a_pod_whose_agent_says_nothing_counts_as_one_that_leaves() -> None:
    assert AgentLink(Client(None, stays=True)).leaves_group()


def test_a_change_that_has_been_heard_of_is_not_waited_for_and_the_newest_counts() -> None:
    client = Client(change(leaves=True), stays=True)
    link = AgentLink(client)
    assert link.leaves_group()
    assert link.leaves_group()
    client.come = [change(leaves=False)]
    assert not link.leaves_group()


def test_each_group_has_changes_of_its_own() -> None:
    link = AgentLink(Client(change(leaves=True), GO, change(leaves=False), stays=True))
    assert link.leaves_group()
    link.wait_for_go()
    assert not link.leaves_group()


def test_a_script_that_is_stopped_ends_and_one_that_is_over_waits_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(script_end, "orderly", True)
    monkeypatch.setattr(script_end, "over", True)
    client = Client(None, stays=False)
    with pytest.raises(ConnectionError, match="gone"):
        AgentLink(client).stop_process()
    assert client.sent == [{"kind": PARKED}]
    monkeypatch.setattr(script_end, "over", False)
    monkeypatch.setattr(script_end, "_wait", None)
    with pytest.raises(PlannedStop):
        AgentLink(client).stop_process()
