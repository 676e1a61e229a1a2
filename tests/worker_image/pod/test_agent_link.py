"""A worker that waits for its next group."""

from typing import Any

import pytest
from elastic_pytorch.pod.agent_link import AgentLink


class Client:
    """Says what it is told to, one each time; None: nothing came in that time."""

    def __init__(self, *messages: dict[str, Any] | None, stays: bool) -> None:
        self.coming = list(messages)
        self.stays = stays

    def messages(self) -> list[dict[str, Any]]:
        return []

    def wait_message(self, timeout_seconds: float) -> dict[str, Any] | None:
        assert timeout_seconds > 0
        return self.coming.pop(0)

    def connected(self) -> bool:
        return self.stays or bool(self.coming)

    def send(self, message: dict[str, Any]) -> None:
        del message


GO = {"kind": "go", "environment": {"RANK": "1"}}


def test_waits_for_as_long_as_the_agent_is_there() -> None:
    assert AgentLink(Client(*[None] * 5000, GO, stays=True)).wait_for_go() == {"RANK": "1"}


def test_does_not_wait_for_an_agent_that_is_gone() -> None:
    with pytest.raises(ConnectionError, match="gone"):
        AgentLink(Client(None, None, stays=False)).wait_for_go()
