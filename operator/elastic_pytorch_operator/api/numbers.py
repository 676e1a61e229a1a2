"""Numbers in labels and annotations, sets of indexes, and Kubernetes quantities. Pure.

A label may hold any text: `str.isdigit` accepts digits that `int` refuses, such as `²`, and `int`
refuses more than 4,300 digits. So nothing else reads a number from one.
"""

import math
import re
from collections.abc import Iterable

_COUNT = re.compile("[0-9]{1,9}")  # fits into 32 bits
MAX_INDEX = 65_535
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?)([numkMGTPE]?|[KMGTPE]i)"
)
_UNITS = {prefix: 1000.0**power for power, prefix in enumerate(["n", "u", "m", "", *"kMGTPE"], -3)}
_UNITS |= {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTPE", start=1)}


def parse_count(text: object) -> int | None:
    """A count, at least 0; None if the operator would not write it in this way."""
    return int(text) if isinstance(text, str) and _COUNT.fullmatch(text) else None


def parse_quantity(text: object) -> float | None:
    """A `resource.Quantity` of apimachinery in its base unit; None if it is none, or infinite."""
    found = _QUANTITY.fullmatch(str(text))
    amount = float(found[1]) * _UNITS[found[2]] if found else math.inf
    return amount if math.isfinite(amount) else None


def format_ranges(indexes: Iterable[int]) -> str:
    """Indexes in the notation of Indexed Jobs (`completedIndexes`): `0-3,5,7-9`; empty for none.

    What is no index of a worker is left out: `parse_ranges` would refuse the whole.
    """
    ranges: list[tuple[int, int]] = []
    for index in sorted({index for index in indexes if 0 <= index <= MAX_INDEX}):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], index
        else:
            ranges.append((index, index))
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)


def parse_ranges(text: str) -> tuple[int, ...]:
    """The indexes of a notation, in order; none if `format_ranges` would not write it."""
    indexes: list[int] = []
    for part in text.split(",") if text else ():
        match = _RANGE.fullmatch(part)
        if match is None:
            return ()
        first, last = int(match[1]), int(match[2] or match[1])
        if not (indexes[-1] if indexes else -1) < first <= last <= MAX_INDEX or (
            match[2] and first == last
        ):
            return ()
        indexes += range(first, last + 1)
    return tuple(indexes)
