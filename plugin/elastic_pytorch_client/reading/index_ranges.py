"""Reads sets of indexes in the notation of Kubernetes' Indexed Jobs: `0-3,5,7-9`."""

MAX_INDEX = 65_535  # far beyond the workers of a job


def parse_ranges(text: str) -> tuple[int, ...]:
    """The indexes of a notation; none if it is not one."""
    indexes: list[int] = []
    for part in text.split(",") if text else ():
        first, dash, end = part.partition("-")
        last = end if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) <= MAX_INDEX):
            return ()
        indexes += range(int(first), int(last) + 1)
    return tuple(indexes)
