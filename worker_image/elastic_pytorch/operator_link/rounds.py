"""Rounds, as the operator declares them (docs/internals/protocol.md).

Each field is checked here, so other code may rely on the types and limits of a `Round`.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

MAX_MEMBERS = 100_000
MAX_CAUSE_CHARACTERS = 1000

Verdict = Literal["complete", "failed"]

_ADDRESS = re.compile(r"[A-Za-z0-9.:_%-]{1,253}")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\u00a0-\uffff]+")


class RoundError(ValueError):
    pass


@dataclass(frozen=True, slots=True)
class Round:
    number: int  # grows with each round of a job; 0: none yet
    size: int = 0  # in pods; 0: all stop
    rank: int | None = None  # of this pod; None: it is not listed
    store_address: str = ""  # MASTER_ADDR; empty without members
    store_port: int = 0  # MASTER_PORT; 0 without members
    cause: str = ""  # in one line
    nudge: int = 0  # changes when the operator wants a heartbeat at once
    verdict: Verdict | None = None
    dump: int = 0  # grows when the operator wants the workers' stacks
    # The oldest round since which no member has been lost. All peers of workers of that round and
    # later ones still train, so they may reach a step boundary before they stop for this round.
    orderly_since: int = 0
    keeps_all_since: int = 0  # the oldest round since which no member has had to leave


def parse_round(answer: object) -> Round:
    fields = mapping(answer, "the round")
    size = integer(fields.get("size"), "size", 0, MAX_MEMBERS)
    rank = None if fields.get("rank") is None else integer(fields["rank"], "rank", 0, size - 1)
    store_address, store_port = "", 0
    if size:
        store = mapping(fields.get("store"), "store")
        store_address = _address(store.get("address"))
        store_port = integer(store.get("port"), "store.port", 1, 65535)
    verdict = fields.get("verdict")
    if verdict not in (None, "complete", "failed"):
        raise RoundError("verdict is neither null nor complete nor failed")
    number = integer(fields.get("round"), "round", 0)
    return Round(
        number=number,
        size=size,
        rank=rank,
        store_address=store_address,
        store_port=store_port,
        cause=_line(fields.get("cause", "")),
        nudge=integer(fields.get("nudge", 0), "nudge", 0),
        verdict=verdict,
        dump=integer(fields.get("dump", 0), "dump", 0),
        orderly_since=integer(fields.get("orderlySince"), "orderlySince", 0, number),
        keeps_all_since=integer(fields.get("keepsAllSince"), "keepsAllSince", 0, number),
    )


def integer(value: object, what: str, least: int, most: int = 2**53) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RoundError(f"{what} is not an integer from {least} to {most}")
    return value


def number(value: object, what: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise RoundError(f"{what} is not a number from {least:g} to {most:g}")
    return float(value)


def mapping(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RoundError(f"{what} is not an object")
    return value


def _address(value: object) -> str:
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        raise RoundError("store.address is not well formed")
    return value


def _line(value: object) -> str:
    """Returns one line that is safe to log: control characters could forge lines of the log."""
    if not isinstance(value, str):
        raise RoundError("cause is not a text")
    return _UNPRINTABLE.sub(" ", value)[:MAX_CAUSE_CHARACTERS]
