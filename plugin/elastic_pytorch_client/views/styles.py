"""Colours, by meaning."""

ACCENT, MUTED = "cyan", "bright_black"
GOOD, BUSY, BAD = "green", "yellow", "red"

_STATES = {
    "Running": GOOD,
    "Complete": GOOD,
    "Succeeded": GOOD,
    "Ready": BUSY,
    "Starting": BUSY,
    "Checking": BUSY,
    "Resizing": BUSY,
    "Pending": BUSY,
    "Silent": BUSY,
    "Leaving": MUTED,
    "Suspended": MUTED,
    "Suspending": MUTED,
    "Lost": BAD,
    "Failed": BAD,
}


def state_style(state: str) -> str:
    """The colour of a job's or a worker's state."""
    return _STATES.get(state, "")


def state_mark(state: str) -> str:
    """A sign before a state, which says the same without colours."""
    return {"Running": "●", "Succeeded": "✔", "Complete": "✔", "Lost": "✗", "Failed": "✗"}.get(state, "○")
