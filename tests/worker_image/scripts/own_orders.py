"""A script's own orders and batches, so that tests know what each step should have had."""

from collections.abc import Callable, Iterator
from itertools import accumulate, cycle, pairwise, takewhile
from typing import Any

from torch.utils.data import Sampler

SAMPLES = 200
SIZES = (1, 20, 5, 2, 22)


class OfEpoch(Sampler[Any]):
    """A torch Sampler whose items are those that a function of the epoch returns."""

    def __init__(self, function: Callable[[int], Any]) -> None:
        self.function, self.epoch = function, -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        return iter(self.function(self.epoch))


def with_repeats(epoch: int) -> list[int]:
    return [(7 * n + epoch) % SAMPLES for n in range(SAMPLES + 30 - 10 * epoch)]


def of_all_sizes(epoch: int) -> list[list[int]]:
    samples = with_repeats(epoch)
    ends = [
        *takewhile(lambda end: end < len(samples), accumulate(cycle(SIZES[epoch:]))),
        len(samples),
    ]
    return [samples[begin:end] for begin, end in pairwise([0, *ends])]


OWN: dict[str, dict[str, OfEpoch]] = {
    "sampler": {"sampler": OfEpoch(with_repeats)},
    "batch_sampler": {"batch_sampler": OfEpoch(of_all_sizes)},
}
