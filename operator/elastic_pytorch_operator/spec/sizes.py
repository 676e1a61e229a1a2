"""How many workers a job has: `replicas`, its bounds, units, spares and allowed sizes."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.spec.schema.validator import bound_of


@dataclass(frozen=True, slots=True)
class Sizes:
    requested: int
    minimum: int  # the fewest workers that train; of a job of a fixed size, all
    maximum: int
    allowed: tuple[int, ...] = ()  # the sizes that a group may have, rising; none: any
    spares: int = 0
    unit: int = 1  # how many workers hold one replica of the model; divides all sizes and spares

    @property
    def wanted(self) -> int:
        return largest_allowed(self.requested, self.allowed)


def read_sizes(spec: Mapping[str, Any], *, stock: bool) -> Sizes:
    """Reads the sizes of a job, which are fixed without `minReplicas`.

    Stock torchrun's largest size cannot be changed when the job is scaled.
    """
    requested, minimum, maximum = spec["replicas"], spec.get("minReplicas"), spec.get("maxReplicas")
    spares, unit = spec.get("spares") or 0, spec.get("unitReplicas") or 1
    if minimum is None:
        return Sizes(requested, requested, requested, spares=spares, unit=unit)
    bound = requested if maximum is None else maximum
    if maximum is None and stock:
        bound = bound_of("maximum", "replicas")
    allowed = tuple(sorted((spec.get("resizePolicy") or {}).get("allowedReplicas") or ()))
    if unit > 1 and not allowed:
        allowed = tuple(range(minimum, bound + 1, unit))
    return Sizes(requested, allowed[0] if allowed else minimum, bound, allowed, spares, unit)


def largest_allowed(count: int, allowed: Sequence[int]) -> int:
    """The largest group of some workers: all, or the largest allowed size; 0: none."""
    return max((size for size in allowed if size <= count), default=0) if allowed else count


def unit_indices(index: int, unit: int) -> range:
    first = index - index % unit
    return range(first, first + unit)


def in_whole_units(indices: Collection[int], unit: int) -> set[int]:
    counts = Counter(index // unit for index in indices)
    return {index for index in indices if counts[index // unit] == unit}
