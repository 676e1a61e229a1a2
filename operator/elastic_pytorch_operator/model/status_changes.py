"""Which changes of a job's status say more than how far its training is. Pure.

How far it is changes with each heartbeat, and what its time was spent on with each second. No
decision rests on what a status says of either: it is written every few seconds, and no plan is made
for its sake.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any

GOODPUT, HISTORY = "goodput", "history"
# Changes of these alone are written every few seconds, and less often where there are many jobs.
SLOW_FIELDS = ("progress", "stragglers")
# Changes of these are written with others, as are samples in the history: time passes always.
FOLLOWING = (GOODPUT,)

Entry = Mapping[str, Any]


def says_more(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two statuses differ in more than how far the training is, and what time was spent on."""
    return differ(old, new, (*SLOW_FIELDS, *FOLLOWING))


def differ(old: Mapping[str, Any], new: Mapping[str, Any], apart: Container[str]) -> bool:
    """Whether two statuses differ in more than some fields, and the samples in their histories."""
    return any(
        _lasting(old, name) != _lasting(new, name) for name in {*old, *new} if name not in apart
    )


def changes_of(history: Sequence[Entry]) -> list[Entry]:
    """Returns the changes of the group in a history, oldest first; the others are samples."""
    return [entry for entry in history if "cause" in entry]


def _lasting(status: Mapping[str, Any], name: str) -> Any:
    return changes_of(status.get(name) or ()) if name == HISTORY else status.get(name)
