"""How many workers a job has: `replicas`, its bounds, units and allowed sizes."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from elastic_pytorch_operator.spec.schema.validator import bound_of


def read_sizes(spec: Mapping[str, Any], *, stock: bool) -> tuple[int, int, tuple[int, ...]]:
    """Reads a `Job`'s minimum, maximum and allowed sizes; without `minReplicas` its size is fixed.

    Stock torchrun's largest size cannot be changed when the job is scaled.
    """
    requested, minimum, maximum = spec["replicas"], spec.get("minReplicas"), spec.get("maxReplicas")
    if minimum is None:
        return requested, requested, ()
    bound = requested if maximum is None else maximum
    if maximum is None and stock:
        bound = bound_of("maximum", "replicas")
    allowed = tuple(sorted((spec.get("resizePolicy") or {}).get("allowedReplicas") or ()))
    unit = spec.get("unitReplicas") or 1
    if unit > 1 and not allowed:
        allowed = tuple(range(minimum, bound + 1, unit))
    return allowed[0] if allowed else minimum, bound, allowed


def largest_allowed(count: int, allowed: Sequence[int]) -> int:
    """The largest group of some workers: all, or the largest allowed size; 0: none."""
    return max((size for size in allowed if size <= count), default=0) if allowed else count


def in_whole_units(indices: Collection[int], unit: int) -> set[int]:
    counts = Counter(index // unit for index in indices)
    return {index for index in indices if counts[index // unit] == unit}
