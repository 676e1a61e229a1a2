"""A round as JSON for agents (docs/internals/protocol.md). Pure.

The common part is encoded once, and each agent gets its own rank instead of a list of all members:
the bytes grow with the members, not their square.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from elastic_pytorch_operator.model.round import Round

MAX_CAUSE_CHARACTERS = 1000  # agents keep no more


class RoundAnswer:
    """The answers about one round; None: no round has been declared, which is number 0."""

    def __init__(self, declared: Round | None) -> None:
        self.declared = declared
        self.number = declared.number if declared else 0

    def describe(self, worker: str, taken: int, news: Mapping[str, Any]) -> bytes:
        since, rank = 0, None
        if (declared := self.declared) is not None:
            since = self.number if taken in declared.unformed else declared.orderly_since
            rank = declared.ranks.get(worker)
        own = {"round": self.number, "orderlySince": since, "rank": rank}
        return b"{%b, %b, %b}" % (_fields(own), self._group, _fields(news))

    @cached_property
    def _group(self) -> bytes:
        if (declared := self.declared) is None:
            return _fields({"size": 0, "keepsAllSince": 0, "store": None, "cause": ""})
        members = declared.members
        group = {
            "size": len(members),
            "keepsAllSince": declared.keeps_all_since,
            "store": {"address": members[0].address, "port": declared.store_port}
            if members
            else None,
            "cause": f"{declared.reason}: {declared.cause}"[:MAX_CAUSE_CHARACTERS],
        }
        return _fields(group)


def _fields(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields)[1:-1].encode()
