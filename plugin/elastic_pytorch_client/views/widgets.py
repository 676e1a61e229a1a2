"""Parts of several views: colours by meaning, and progress bars."""

import itertools
from collections.abc import Sequence

from rich.text import Text

ACCENT, MUTED = "cyan", "bright_black"
GOOD, BUSY, BAD = "green", "yellow", "red"
BLOCKS = "▁▂▃▄▅▆▇█"

_STATES = {
    **dict.fromkeys(("Running", "Complete", "Succeeded", "Spare"), GOOD),
    **dict.fromkeys(("Ready", "Starting", "Preparing", "Saving"), BUSY),
    **dict.fromkeys(("Resizing", "Pending", "Silent"), BUSY),
    **dict.fromkeys(("Leaving", "Ended", "Suspended", "Suspending"), MUTED),
    **dict.fromkeys(("Lost", "Failed"), BAD),
}
_MARKS = {"Running": "●", "Succeeded": "✔", "Complete": "✔", "Lost": "✗", "Failed": "✗"}


def state_style(state: str) -> str:
    return _STATES.get(state, "")


def state_mark(state: str) -> str:
    return _MARKS.get(state, "○")


def progress_bar(fraction: float, width: int) -> Text:
    """A bar for a fraction from 0 to 1, in half characters; the width is in characters."""
    halves = round(min(1.0, max(0.0, fraction)) * width * 2)
    full, half = divmod(halves, 2)
    done = "━" * full + "╸" * half
    return Text(done, GOOD if fraction >= 1 else ACCENT).append("─" * (width - full - half), MUTED)


def spark(values: Sequence[float | None], width: int, floor: float | None = None) -> str:
    """A line of blocks for finite values, with gaps, from a floor or else the least value."""
    known = [value for value in values if value is not None]
    low = min(known, default=0.0) if floor is None else floor
    span = max(known, default=0.0) - low or 1.0
    blocks = (
        " " if value is None else BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))]
        for value in values
    )
    return "".join(block * width for block in blocks)


def pool(values: Sequence[float], limit: int) -> list[float]:
    """At most `limit` values: the means of groups of neighbours."""
    if len(values) <= limit:
        return list(values)
    bounds = [round(i * len(values) / limit) for i in range(limit + 1)]
    groups = [values[start:end] for start, end in itertools.pairwise(bounds)]
    return [sum(group) / len(group) for group in groups]
