"""What agents read of the operator's answers to `GET /v1/round`. Pure.

A round of thousands of workers is the same long text for each of them. It is parsed once, and recognised when it comes again.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BEGIN, END = b'"members": ', b', "nudge": '
MAX_GROUPS = 2000  # that are remembered: the newest of each job, and some


@dataclass(frozen=True, slots=True)
class Round:
    """A round, and the operator's other news.

    Attributes:
        ranks: of the members, by the name of their pod.
    """

    number: int
    orderly_since: int
    ranks: Mapping[str, int]
    cause: str
    nudge: int
    verdict: str | None


class Rounds:
    """Reads rounds."""

    def __init__(self) -> None:
        self._groups: OrderedDict[bytes, tuple[Mapping[str, int], str]] = OrderedDict()

    def read(self, answer: bytes) -> Round:
        """Reads an answer: as a whole, unless it has the operator's order of fields.

        Raises:
            ValueError: it is not JSON.
        """
        begin, end = answer.find(BEGIN), answer.rfind(END)
        if begin < 0 or end < begin:
            fields = json.loads(answer)
            ranks, cause = _group(fields)
        else:
            fields = json.loads(answer[:begin] + answer[end + 2 :])
            group = answer[begin:end]
            if group not in self._groups:
                self._groups[group] = _group(json.loads(b"{" + group + b"}"))
                if len(self._groups) > MAX_GROUPS:
                    self._groups.popitem(last=False)
            ranks, cause = self._groups[group]
        number = fields["round"]
        return Round(number, fields.get("orderlySince", number), ranks, cause, fields.get("nudge", 0), fields.get("verdict"))


def _group(fields: dict[str, Any]) -> tuple[Mapping[str, int], str]:
    return {member["worker"]: rank for rank, member in enumerate(fields["members"])}, fields.get("cause") or ""
