"""Finds the ranks that a hanging group waits for: those outside of the others' collective.

Of ranks in different collectives, those in another one than most are named.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastic_pytorch_operator.model.observed import Place, PlaceKind

MAX_NAMED = 4  # ranks whose places a text has
# Point to point: two ranks that wait for each other are in different ones.
_ONE_TO_ONE = frozenset(
    {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
)

_WORDS = {
    PlaceKind.DATA_LOADER: "is in its data loader",
    PlaceKind.LOCK: "waits for a lock, a thread or a process",
    PlaceKind.FILE: "reads or writes a file",
    PlaceKind.OTHER: "is outside of the group's communication",
    PlaceKind.ENDED: "has exited with 0",
    PlaceKind.STOPPED: "is stopped by a signal",
    PlaceKind.KERNEL: "is in a call of the kernel that does not return",
    PlaceKind.SILENT: "has not said where it is",
}


@dataclass(frozen=True, slots=True)
class Culprits:
    ranks: tuple[int, ...] = ()  # the others wait for them; in order; empty: none stands out
    text: str = ""  # follows a semicolon; empty: no rank has reported its place


def find_culprits(places: Mapping[int, Place]) -> Culprits:
    if all(place.kind is PlaceKind.SILENT for place in places.values()):
        return Culprits()
    inside = (rank for rank, place in places.items() if place.kind is PlaceKind.COLLECTIVE)
    waiting = {rank: _operation(places[rank]) for rank in inside}
    outside = tuple(sorted(places.keys() - waiting.keys()))
    known = tuple(rank for rank in outside if places[rank].kind is not PlaceKind.SILENT)
    outside = known or outside
    if not waiting:
        return _apart_from_most(places)
    if outside:
        if len(outside) > len(waiting):
            return Culprits(
                text="most ranks are outside of the group's communication: "
                f"{_name(outside, places)}"
            )
        operations = " or ".join(sorted(set(waiting.values())))
        text = f"{_name(outside, places)}, {_others(len(waiting))} in {operations}"
        return Culprits(outside, text)
    (most, count), *others = Counter(waiting.values()).most_common()
    if not others:
        return Culprits(text=f"all ranks wait in {most}: none stands out")
    if count * 2 <= len(waiting):
        return Culprits(
            text="the ranks wait for each other in different collectives: "
            f"{_name(sorted(waiting), places)}"
        )
    apart = tuple(rank for rank in sorted(waiting) if waiting[rank] != most)
    return Culprits(apart, f"{_name(apart, places)}, {_others(count)} in {most}")


def _apart_from_most(places: Mapping[int, Place]) -> Culprits:
    """The ranks elsewhere, if most are at one line of the script."""
    (most, count), *_ = Counter(places.values()).most_common()
    apart = tuple(rank for rank in sorted(places) if places[rank] != most)
    if not apart:
        return Culprits(text=f"all ranks are at the same place: each {_where(most)}")
    if count * 2 <= len(places) or not most.frame or most.kind is not PlaceKind.OTHER:
        return Culprits(text=f"no rank is in a collective: {_name(sorted(places), places)}")
    return Culprits(apart, f"{_name(apart, places)}, the others are at {most.frame}")


def _operation(place: Place) -> str:
    return "send or recv" if place.operation in _ONE_TO_ONE else place.operation or "a collective"


def _name(ranks: Sequence[int], places: Mapping[int, Place]) -> str:
    named = [f"rank {rank} {_where(places[rank])}" for rank in ranks[:MAX_NAMED]]
    if len(ranks) > MAX_NAMED:
        named.append(f"{len(ranks) - MAX_NAMED} more")
    return ", ".join(named)


def _where(place: Place) -> str:
    words = _WORDS.get(place.kind, f"waits in {_operation(place)}")
    return f"{words} ({place.frame})" if place.frame else words


def _others(count: int) -> str:
    return "the other waits" if count == 1 else "the others wait"
