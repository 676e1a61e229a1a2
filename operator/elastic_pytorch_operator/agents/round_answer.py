"""A round as JSON, as agents get it (docs/protocol.md). Pure.

A thousand agents may ask for a round at the same time. What is the same for all is encoded once. An agent that asks for the brief answer
gets its own rank instead of the list of all members. So the bytes of all answers grow with the members, and not with their square.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from elastic_pytorch_operator.model.check import CheckRequest
from elastic_pytorch_operator.model.round import Round

MAX_CAUSE_CHARACTERS = 1000  # agents keep no more


class RoundAnswer:
    """The answers about one round.

    Args:
        declared: the round; None: none has been declared, which is number 0.

    Attributes:
        declared: the same.
    """

    def __init__(self, declared: Round | None) -> None:
        self.declared = declared

    def describe(self, worker: str, taken: int, news: Mapping[str, Any], *, brief: bool) -> bytes:
        """Returns the body for one agent.

        Args:
            worker: the agent's pod.
            taken: the newest round that the agent has taken up; 0: none.
            news: fields that do not depend on the round.
            brief: the agent needs no list of the members.
        """
        number, since, rank = 0, 0, None
        if (declared := self.declared) is not None:
            number, since = declared.number, declared.number if taken in declared.unformed else declared.orderly_since
            rank = declared.ranks.get(worker)
        own = {"round": number, "orderlySince": since, **({"rank": rank} if brief else {})}
        return b"{%b, %b, %b}" % (
            _fields(own),
            self._brief_group if brief else self._group,
            _fields({**news, "worker": worker}),
        )

    @cached_property
    def _brief_group(self) -> bytes:
        size, since = (len(self.declared.members), self.declared.keeps_all_since) if self.declared else (0, 0)
        return _fields({"size": size, "keepsAllSince": since, **self._store_and_cause})

    @cached_property
    def _group(self) -> bytes:
        members = self.declared.members if self.declared else ()
        listed = [{"worker": member.worker, "index": member.index, "address": member.address} for member in members]
        return _fields({"members": listed, **self._store_and_cause})

    @property
    def _store_and_cause(self) -> dict[str, Any]:
        if self.declared is None:
            return {"store": None, "cause": ""}
        members = self.declared.members
        store = {"address": members[0].address, "port": self.declared.store_port} if members else None
        return {"store": store, "cause": f"{self.declared.reason}: {self.declared.cause}"[:MAX_CAUSE_CHARACTERS]}


def describe_check(check: CheckRequest) -> dict[str, Any]:
    """What an agent is to measure, as the answer has it."""
    return {
        "number": check.number,
        "firstRank": check.first_rank,
        "worldSize": check.world_size,
        "store": {"address": check.store_address, "port": check.store_port},
        "seconds": check.seconds,
    }


def _fields(fields: Mapping[str, Any]) -> bytes:
    """Fields of a JSON object, without its braces."""
    return json.dumps(fields)[1:-1].encode()
