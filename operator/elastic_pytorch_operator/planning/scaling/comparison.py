"""What more workers add: the speeds of two groups of different sizes, compared.

The *efficiency* of the added workers is what each of them adds, divided by what each of the fewer workers does: 1 if the job scales
linearly, 0 if they add nothing. The margin is three standard errors. With six windows or more on each side, a difference that is larger
comes about by chance in one comparison of a hundred (Student's t with 10 degrees of freedom: 3.17).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import hypot

from elastic_pytorch_operator.planning.scaling.throughput import Throughput

MARGIN_ERRORS = 3.0
COMPARABLE_SECONDS = 3600.0  # between two measurements: what else changes the speed, such as other jobs, changes over hours
TELLING_MARGIN = 0.25  # a larger one tells users nothing


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two groups of one job.

    Attributes:
        fewer: workers of the smaller group.
        more: workers of the larger one.
        before: samples per second of the smaller group.
        after: of the larger one.
        efficiency: of the workers that the larger one has more.
        margin: of the efficiency, to both sides.
    """

    fewer: int
    more: int
    before: float
    after: float
    efficiency: float
    margin: float

    @property
    def added(self) -> float:
        """By which part the larger group is faster; negative if it is slower."""
        return self.after / self.before - 1

    @property
    def telling(self) -> bool:
        """Whether it is sure enough to be told."""
        return self.margin <= TELLING_MARGIN

    def agrees_with(self, newer: "Comparison") -> bool:
        """Whether a newer comparison of the same sizes tells nothing new."""
        same = (self.fewer, self.more) == (newer.fewer, newer.more)
        return same and abs(self.efficiency - newer.efficiency) <= max(self.margin, newer.margin)

    def __str__(self) -> str:
        count = self.more - self.fewer
        who = f"the {ordinal(self.more)} worker" if count == 1 else f"the last {count} of {self.more} workers"
        percent = round(100 * self.added)
        what = f"made it {-percent} % slower" if percent < 0 else f"added {percent} %"
        return f"{who} {what} ({self.before:.3g} to {self.after:.3g} samples/s), an efficiency of {self.efficiency:z.2f}"


def compare(one: Throughput, other: Throughput) -> Comparison | None:
    """Compares two groups; None if they have the same size, were measured too long apart, or one did nothing."""
    fewer, more = sorted((one, other))
    if fewer.workers == more.workers or abs(one.at - other.at) > COMPARABLE_SECONDS:
        return None
    if fewer.samples_per_second <= 0 or more.samples_per_second <= 0:
        return None
    ratio, share = more.samples_per_second / fewer.samples_per_second, fewer.workers / (more.workers - fewer.workers)
    error = ratio * hypot(more.error / more.samples_per_second, fewer.error / fewer.samples_per_second)
    return Comparison(
        fewer.workers,
        more.workers,
        fewer.samples_per_second,
        more.samples_per_second,
        (ratio - 1) * share,
        MARGIN_ERRORS * error * share,
    )


def nearest(current: Throughput, sizes: Iterable[Throughput]) -> Throughput | None:
    """Of other sizes the nearest one that the present one can be compared with; of two the newer."""
    others = [known for known in sizes if compare(current, known) is not None]
    return min(others, key=lambda known: (abs(known.workers - current.workers), -known.at), default=None)


def ordinal(number: int) -> str:
    """A number as a place in a row: 1st, 2nd, 3rd, 4th, 11th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
