"""What an agent reads of the rounds that the operator sends. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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


def read_round(fields: Mapping[str, Any]) -> Round:
    """Reads what the operator has sent.

    Raises:
        KeyError: a field is missing.
    """
    return Round(fields["round"], fields["orderlySince"], fields["rank"], fields["size"], fields["cause"], fields["nudge"])
