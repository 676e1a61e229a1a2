"""Finds the ranks that a hanging group waits for: those outside of the others' collective.

A rank in a collective waits for all others, so it waits for the ones that are in none. Ranks in
different collectives wait for each other: then those in another one than most are named.
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
    """Compares the places of a group's ranks; a rank without one is silent."""
    if all(place.kind is PlaceKind.SILENT for place in places.values()):
        return Culprits()
    waiting = {
        rank: _operation(place)
        for rank, place in places.items()
        if place.kind is PlaceKind.COLLECTIVE
    }
    outside = tuple(sorted(places.keys() - waiting.keys()))
    outside = (
        tuple(rank for rank in outside if places[rank].kind is not PlaceKind.SILENT) or outside
    )
    if not waiting:
        return _apart_from_most(places)
    if outside:
        if len(outside) > len(waiting):
            return Culprits(
                text="most ranks are outside of the group's communication: "
                f"{_name(outside, places)}"
            )
        operations = " or ".join(sorted(set(waiting.values())))
        return Culprits(
            outside, f"{_name(outside, places)}, {_others(len(waiting))} in {operations}"
        )
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
    """The ranks elsewhere, if most are at one line of the script, perhaps to wait for a GPU."""
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
    return ", ".join(
        [*named, f"{len(ranks) - MAX_NAMED} more"] if len(ranks) > MAX_NAMED else named
    )


def _where(place: Place) -> str:
    words = (
        f"waits in {_operation(place)}"
        if place.kind is PlaceKind.COLLECTIVE
        else _WORDS[place.kind]
    )
    return f"{words} ({place.frame})" if place.frame else words


def _others(count: int) -> str:
    return "the other waits" if count == 1 else "the others wait"
