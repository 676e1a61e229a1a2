import pytest
import torch
from elastic_pytorch.transformers.seeded_dataset import SeededDataset
from torch.utils.data import DataLoader

pytestmark = pytest.mark.torch


class Noisy(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> torch.Tensor:
        return number + torch.rand(())


class Batched(Noisy):
    asked: list[list[int]]

    def __getitems__(self, numbers: list[int]) -> list[torch.Tensor]:
        self.asked.append(numbers)
        return [torch.tensor(float(number)) for number in numbers]


def rows(data: SeededDataset, batches: list[list[int]]) -> list[list[float]]:
    return [batch.tolist() for batch in DataLoader(data, batch_sampler=batches)]


def test_random_transforms_depend_on_the_samples_alone() -> None:
    data = SeededDataset(Noisy(), seed=3)
    first = rows(data, [[0, 1], [2, 3]])
    torch.manual_seed(99)
    assert rows(data, [[2, 3], [0, 1]]) == first[::-1]
    assert first[0][0] % 1 != first[1][0] % 1


def test_a_collator_draws_after_the_seed() -> None:
    data = SeededDataset([0, 1, 2, 3], seed=3)

    def collate(batch: list[int]) -> torch.Tensor:
        return torch.tensor(batch) + torch.rand(len(batch))

    once = [
        batch.tolist()
        for batch in DataLoader(data, batch_sampler=[[0, 1], [2, 3]], collate_fn=collate)
    ]
    again = [
        batch.tolist() for batch in DataLoader(data, batch_sampler=[[2, 3]], collate_fn=collate)
    ]
    assert again == once[1:]


def test_another_seed_draws_other_numbers() -> None:
    assert rows(SeededDataset(Noisy(), seed=3), [[0, 1]]) != rows(
        SeededDataset(Noisy(), seed=4), [[0, 1]]
    )


def test_a_dataset_that_reads_whole_batches_still_does() -> None:
    inner = Batched()
    inner.asked = []
    assert rows(SeededDataset(inner, seed=0), [[1, 2]]) == [[1.0, 2.0]]
    assert inner.asked == [[1, 2]]
    assert len(SeededDataset(inner, seed=0)) == 8
    assert SeededDataset([7, 8], seed=0)[1] == 8
