"""In which order the samples of an epoch come: by seed and epoch alone, so that it is the same for a group of any size."""

import torch

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

    def _made(self, epoch: int) -> torch.Tensor:
        if not self._shuffle:
            return torch.arange(self._length)
        generator = torch.Generator().manual_seed(mixed(self._seed, epoch))
        return torch.randperm(self._length, generator=generator)
