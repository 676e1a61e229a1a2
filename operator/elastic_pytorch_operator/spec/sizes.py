"""How many workers a job has: `replicas`, its bounds, `unitReplicas`, `spares` and `resizePolicy.allowedReplicas`."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.spec.fields import InvalidJob, read_integer, read_object

MAX_WORKERS, MAX_SPARES, MAX_UNIT = 4096, 64, 512  # as the schema has it
MAKE_ELASTIC = "may not be set while minReplicas is unset: set spec.minReplicas to make the job elastic"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a job.

    Attributes:
        requested: `spec.replicas`.
        minimum: the fewest workers that train; of a job of a fixed size, all.
        maximum: the most workers that may be requested.
        allowed: the sizes that a group may have, rising; none: any.
        spares: pods beyond the wanted workers.
        unit: how many workers hold one replica of the model; all sizes and spares are multiples of it.
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
        spec: of the job.
        stock: stock torchrun forms the group. Its largest size cannot be changed when the job is scaled.

    Raises:
        InvalidJob: a size is missing or out of bounds.
    """
    minimum = read_integer(spec, "minReplicas", None)
    maximum = read_integer(spec, "maxReplicas", None)
    if minimum is None and maximum is not None:
        raise InvalidJob("spec.maxReplicas", MAKE_ELASTIC)
    if minimum is not None and maximum is not None and maximum < minimum:
        problem = (
            f"must be greater than or equal to minReplicas ({minimum}), not {maximum}: raise maxReplicas or lower minReplicas"
        )
        raise InvalidJob("spec.maxReplicas", problem)
    requested = read_integer(spec, "replicas", None)
    if requested is None:
        raise InvalidJob("spec.replicas", "set the number of workers")
    if minimum is not None and requested < minimum:
        problem = (
            f"must be greater than or equal to minReplicas ({minimum}), not {requested}: raise replicas or lower minReplicas"
        )
        raise InvalidJob("spec.replicas", problem)
    if maximum is not None and requested > maximum:
        problem = f"must be less than or equal to maxReplicas ({maximum}), not {requested}: lower replicas or raise maxReplicas"
        raise InvalidJob("spec.replicas", problem)
    allowed = _allowed_sizes(spec, minimum, maximum)
    if allowed and requested < allowed[0]:
        problem = (
            f"must be greater than or equal to the smallest of resizePolicy.allowedReplicas ({allowed[0]}), not {requested}"
        )
        raise InvalidJob("spec.replicas", problem)
    spares = read_integer(spec, "spares", 0, least=0, most=MAX_SPARES) or 0
    unit = read_integer(spec, "unitReplicas", 1, most=MAX_UNIT) or 1
    counts = {"replicas": requested} if minimum is None else {"minReplicas": minimum, "maxReplicas": maximum or 0}
    for name, count in [*counts.items(), ("spares", spares), *(("resizePolicy.allowedReplicas", size) for size in allowed)]:
        if count % unit:  # `replicas` of an elastic job is rounded down: any client may scale it
            raise InvalidJob("spec.unitReplicas", f"must divide {name} ({count}): a unit trains as a whole")
    if minimum is None:
        return Sizes(requested, requested, requested, spares=spares, unit=unit)
    bound = maximum if maximum is not None else MAX_WORKERS if stock else requested
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


def _allowed_sizes(spec: Mapping[str, Any], minimum: int | None, maximum: int | None) -> tuple[int, ...]:
    """`resizePolicy.allowedReplicas`, rising."""
    path = "spec.resizePolicy.allowedReplicas"
    sizes = read_object(spec, "resizePolicy").get("allowedReplicas") or []
    if not isinstance(sizes, list) or not all(isinstance(size, int) and not isinstance(size, bool) for size in sizes):
        raise InvalidJob(path, "must be a list of whole numbers")
    if sizes and minimum is None:
        raise InvalidJob(path, MAKE_ELASTIC)
    for size in sizes:
        if minimum is not None and size < minimum:
            raise InvalidJob(path, f"each must be greater than or equal to minReplicas ({minimum}), not {size}")
        if maximum is not None and size > maximum:
            raise InvalidJob(path, f"each must be less than or equal to maxReplicas ({maximum}), not {size}")
    return tuple(sorted(set(sizes)))
