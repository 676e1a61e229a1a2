"""In which order the samples of an epoch come: by seed and epoch alone, so that it is the same for a group of any size."""

from collections.abc import Sized
from typing import Any

import torch
from torch.utils.data import IterableDataset, Sampler

from elastic_pytorch.state.values.rng_state import mixed


class EpochOrder:
    """The orders of all epochs. The newest one that was asked for is kept.

    Args:
        length: how many samples there are.
        shuffle: whether each epoch has an order of its own; otherwise all have that of the dataset.
        seed: of the orders.
    """

    def __init__(self, length: int, *, shuffle: bool, seed: int) -> None:
        self._length, self._shuffle, self._seed = length, shuffle, seed
        self._newest: tuple[int, torch.Tensor] | None = None

    def of(self, epoch: int) -> torch.Tensor:
        """Returns the indices of an epoch's samples, in their order."""
        if self._newest is None or self._newest[0] != epoch:
            self._newest = epoch, self._made(epoch)
        return self._newest[1]

    def samples(self, epoch: int) -> int:
        """Returns the number of samples in an epoch: the same in each."""
        del epoch
        return self._length

    def ends(self, epoch: int) -> None:
        """Returns None: the batches of all epochs have one size."""

    def usual_batch(self, epoch: int, size: int) -> int:
        """Returns the samples of most steps."""
        return min(size, self.samples(epoch))

    def end_step(self, epoch: int) -> None:
        """Does nothing: seed and length say which order it is."""

    def state_dict(self) -> dict[str, Any]:
        """Returns nothing: the sampler's state has the seed and the length."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Checks that the order of a saved state is one by seed, too.

        Raises:
            ValueError: it is not.
        """
        if "order" in state:
            raise ValueError(
                f"the order was that of {state['order']['given']}=, and is that of the seed now: give what it was, or begin in another "
                "folder"
            )

    def compare(self, epoch: int) -> None:
        """Does nothing: `State.restore` makes sure that all ranks have the same seed and length."""

    def _made(self, epoch: int) -> torch.Tensor:
        if not self._shuffle:
            return torch.arange(self._length)
        generator = torch.Generator().manual_seed(mixed(self._seed, epoch))
        return torch.randperm(self._length, generator=generator)


def length_of(data: Sized | int) -> int:
    """Returns the number of samples of a dataset, or the number itself.

    Raises:
        TypeError: it has none.
        ValueError: it is 0.
    """
    if isinstance(data, Sampler):
        raise TypeError(
            f"ElasticSampler needs the dataset, not a {type(data).__name__} of it, which may have cut it up for the ranks"
        )
    if isinstance(data, IterableDataset) or not (isinstance(data, int) or hasattr(data, "__len__")):
        raise TypeError(
            f"ElasticSampler needs a dataset with a length, not {type(data).__name__}: an iterable one has no order that a group of "
            "another size could go on with. Give its shards to an ElasticStream"
        )
    length = data if isinstance(data, int) else len(data)
    if length < 1:
        raise ValueError("the dataset is empty")
    return length
