"""A Trainer and a module that are quick to make and to fit."""

from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import lightning as L  # noqa: N812 - as Lightning's own documentation has it
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NUMBERS = torch.linspace(-1, 1, 24)
DATA = TensorDataset(NUMBERS.unsqueeze(1), NUMBERS**2)


class Small(L.LightningModule):
    """Fits a parabola, badly.

    Attributes:
        seen: the epoch and the number of each batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.seen: list[tuple[int, int]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.seen.append((self.current_epoch, batch_idx))
        return nn.functional.mse_loss(self.net(batch[0]).squeeze(1), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(folder: Path | None, *, epochs: int = 2, batch_size: int = 6, **arguments: Any) -> L.Trainer:
    """A Trainer on the CPU with the library, and nothing that prints."""
    elastic_arguments = {name: arguments.pop(name) for name in ("micro_batch_size", "callbacks", "name") if name in arguments}
    options = elastic.lightning.options(folder, batch_size=batch_size, every=1, **elastic_arguments)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    defaults = {"max_epochs": epochs, "accelerator": "cpu", "devices": 1}
    return L.Trainer(**(defaults | quiet | options | arguments))


def loader() -> DataLoader[Any]:
    return DataLoader(DATA, batch_size=4, shuffle=True)
