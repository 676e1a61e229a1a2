"""Random numbers that depend on the samples alone."""

from typing import Any

from torch.utils.data import Dataset

from elastic_pytorch.state.values.rng_state import mixed, seed_all


class SeededDataset(Dataset[Any]):
    """Seeds the random number generators for each list of samples, before it reads them.

    A DataLoader calls the collator in the same process right after that, so a collator that masks
    tokens draws the same in a group of any size, too.
    """

    def __init__(self, data: Any, seed: int) -> None:
        self.data = data
        self.seed = seed

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, number: int) -> Any:
        return self.data[number]

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        seed_all(mixed(self.seed, *numbers))
        if (several := getattr(self.data, "__getitems__", None)) is not None:
            found: list[Any] = several(numbers)
            return found
        return [self.data[number] for number in numbers]
