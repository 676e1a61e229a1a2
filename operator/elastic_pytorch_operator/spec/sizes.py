"""How many workers a job has: `replicas`, its bounds, `unitReplicas`, `spares` and `resizePolicy.allowedReplicas`."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.spec.schema.validator import bound_of


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a job.

    Attributes:
        minimum: the fewest workers that train; of a job of a fixed size, all.
        maximum: the most workers that may be requested.
        allowed: the sizes that a group may have, rising; none: any.
        unit: how many workers hold one replica of the model; all sizes and spares are multiples of
            it.
    """

    requested: int
    minimum: int
    maximum: int
    allowed: tuple[int, ...] = ()
    spares: int = 0
    unit: int = 1

    @property
    def wanted(self) -> int:
        """The workers to aim at: as many as are requested, or the next smaller allowed size."""
        return largest_allowed(self.requested, self.allowed)


def read_sizes(spec: Mapping[str, Any], *, stock: bool) -> Sizes:
    """Reads the sizes of a job.

    A job without `minReplicas` has a fixed size.

    Args:
        stock: stock torchrun forms the group. Its largest size cannot be changed when the job is
            scaled.
    """
    requested, minimum, maximum = spec["replicas"], spec.get("minReplicas"), spec.get("maxReplicas")
    spares, unit = spec.get("spares") or 0, spec.get("unitReplicas") or 1
    if minimum is None:
        return Sizes(requested, requested, requested, spares=spares, unit=unit)
    bound = (
        maximum if maximum is not None else bound_of("maximum", "replicas") if stock else requested
    )
    allowed = tuple(sorted((spec.get("resizePolicy") or {}).get("allowedReplicas") or ()))
    if unit > 1 and not allowed:
        allowed = tuple(range(minimum, bound + 1, unit))
    return Sizes(requested, allowed[0] if allowed else minimum, bound, allowed, spares, unit)


def largest_allowed(count: int, allowed: Sequence[int]) -> int:
    """The largest group that a number of workers can form: all of them, or the largest allowed size; 0: none."""
    return max((size for size in allowed if size <= count), default=0) if allowed else count


def unit_indices(index: int, unit: int) -> range:
    """The indices of the workers that are of one unit with that of an index."""
    first = index - index % unit
    return range(first, first + unit)


def in_whole_units(indices: Collection[int], unit: int) -> set[int]:
    """Those of some different indices whose units are whole."""
    counts = Counter(index // unit for index in indices)
    return {index for index in indices if counts[index // unit] == unit}
