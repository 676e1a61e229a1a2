"""Sets of indexes in the notation of Kubernetes' Indexed Jobs (`completedIndexes`): `0-3,5,7-9`."""

import re
from collections.abc import Iterable

MAX_INDEX = 65_535  # far beyond the workers of a job: what claims more is not what this module has written
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)


def format_ranges(indexes: Iterable[int]) -> str:
    """The notation of some indexes; empty for none."""
    ranges: list[tuple[int, int]] = []
    for index in sorted(set(indexes)):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], index
        else:
            ranges.append((index, index))
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)


def parse_ranges(text: str) -> tuple[int, ...]:
    """The indexes of a notation, in their order; none if it is not one that `format_ranges` writes."""
    indexes: list[int] = []
    for part in text.split(",") if text else ():
        match = _RANGE.fullmatch(part)
        if match is None:
            return ()
        first, last = int(match[1]), int(match[2] or match[1])
        if not (indexes[-1] if indexes else -1) < first <= last <= MAX_INDEX or (match[2] and first == last):
            return ()
        indexes += range(first, last + 1)
    return tuple(indexes)
