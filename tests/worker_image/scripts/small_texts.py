"""Texts of uneven lengths for a model in 64 bits: the order of sums changes next to nothing."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

SAMPLES, CLASSES, IGNORED = 130, 4, -100


def texts(samples: int = SAMPLES) -> TensorDataset:
    """Inputs, targets, and the number of each sample."""
    dice = torch.Generator().manual_seed(3)
    inputs = torch.randn(samples, 6, 5, dtype=torch.float64, generator=dice)
    targets = torch.randint(CLASSES, (samples, 6), generator=dice)
    lengths = torch.randint(1, 7, (samples, 1), generator=dice)
    return TensorDataset(
        inputs, targets.masked_fill(torch.arange(6) >= lengths, IGNORED), torch.arange(samples)
    )


def new_model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double()


def whole_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over all tokens, of which each sample has equally many."""
    return cross_entropy(outputs.flatten(0, 1), targets.clamp(min=0).flatten())


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over the tokens that count."""
    return cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
