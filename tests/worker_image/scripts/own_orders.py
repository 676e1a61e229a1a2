"""Orders and batches of a script's own, for tests to tell afterwards what each step should have had."""

from collections.abc import Callable
from itertools import accumulate, cycle, pairwise, takewhile
from typing import Any

SAMPLES = 200
SIZES = (1, 20, 5, 2, 22)


def with_repeats(epoch: int) -> list[int]:
    return [(7 * n + epoch) % SAMPLES for n in range(SAMPLES + 30 - 10 * epoch)]


def of_all_sizes(epoch: int) -> list[list[int]]:
    samples = with_repeats(epoch)
    ends = [*takewhile(lambda end: end < len(samples), accumulate(cycle(SIZES[epoch:]))), len(samples)]
    return [samples[begin:end] for begin, end in pairwise([0, *ends])]


OWN: dict[str, dict[str, Callable[[int], Any]]] = {
    "order": {"order": with_repeats},
    "batches": {"batches": of_all_sizes},
}
