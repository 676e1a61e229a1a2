"""What an agent reads of the operator's answers to `GET /v1/round`. Pure."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Round:
    """A round, and the operator's other news.

    Attributes:
        rank: of the asker; None: the round does not list it.
        size: in pods.
    """

    number: int = 0
    orderly_since: int = 0
    rank: int | None = None
    size: int = 0
    cause: str = ""
    nudge: int = 0
    verdict: str | None = None


def read_round(answer: bytes, worker: str) -> Round:
    """Reads what a worker has been answered; operators before 0.3 list all members instead of its rank.

    Raises:
        ValueError: it is not JSON.
        KeyError: a field is missing.
    """
    fields = json.loads(answer)
    number, rank = fields["round"], fields.get("rank")
    if "size" not in fields:
        members = [member["worker"] for member in fields["members"]]
        fields["size"], rank = len(members), members.index(worker) if worker in members else None
    since, nudge, cause = fields.get("orderlySince", number), fields.get("nudge", 0), fields.get("cause") or ""
    return Round(number, since, rank, fields["size"], cause, nudge, fields.get("verdict"))
