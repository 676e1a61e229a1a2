"""Which changes of a job's status are more than progress of its training.

No decision depends on progress or goodput in the status, so their changes cause no plan.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any

GOODPUT, HISTORY = "goodput", "history"
# Changes of these alone are written every few seconds, and less often where there are many jobs.
SLOW_FIELDS = ("progress", "stragglers")
# These, and samples in the history, are written only with other changes: time always passes.
FOLLOWING = (GOODPUT,)

Entry = Mapping[str, Any]


def says_more(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return differ(old, new, (*SLOW_FIELDS, *FOLLOWING))


def differ(old: Mapping[str, Any], new: Mapping[str, Any], apart: Container[str]) -> bool:
    """Whether two statuses differ in more than the fields `apart` and samples in the history."""
    return any(
        _lasting(old, name) != _lasting(new, name) for name in {*old, *new} if name not in apart
    )


def changes_of(history: Sequence[Entry]) -> list[Entry]:
    """The changes of the group in a history, oldest first; the others are samples."""
    return [entry for entry in history if "cause" in entry]


def _lasting(status: Mapping[str, Any], name: str) -> Any:
    return changes_of(status.get(name) or ()) if name == HISTORY else status.get(name)
