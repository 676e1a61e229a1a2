"""A small convolutional network: what the example trains.

Nothing in it knows about processes or groups.
"""

import torch
from torch import Tensor, nn


class DigitReader(nn.Module):
    """Gives each of the ten digits a score, for images of 8 x 8 pixels.

    Its norms are over the channels of one image. A batch norm would make what it learns depend on
    how the batch was shared out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.scores = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 4 * 4, 10))

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.scores(self.features(images))
        return scores


def moved_a_little(images: Tensor) -> Tensor:
    """The same images, each batch of them moved by up to a pixel: they show the same digits."""
    down, right = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(images, (down, right), (2, 3))
